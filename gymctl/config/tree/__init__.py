"""The merged tree: who wrote what, what references lead to, its agents, what may be shown of it."""
