"""Model servers: dialects in front, upstreams behind."""
