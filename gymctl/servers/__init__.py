"""The SDK inside a container: one base class per kind, head, client, session."""
