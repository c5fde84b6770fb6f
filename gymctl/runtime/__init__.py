"""A project alive: the same few calls whether its servers are containers or local processes (DESIGN D4)."""
