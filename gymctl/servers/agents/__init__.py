"""Agent servers: the loop between a model and tools, and their sessions."""
