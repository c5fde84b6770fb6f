"""Resources servers: tools, sessions with state, verifiers, judges, MCP, step-style environments."""
