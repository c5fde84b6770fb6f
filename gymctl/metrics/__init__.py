"""Records -> numbers; pure."""
