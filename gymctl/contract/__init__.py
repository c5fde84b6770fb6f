"""What crosses a wire or a file, shared by host and containers. Pydantic only; imports nothing above it."""
