"""The merged tree: who wrote what, what references lead to, what may be shown of it."""
