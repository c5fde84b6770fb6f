"""What a server's config class knows, read from its source without importing it."""
