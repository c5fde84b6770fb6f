"""Pure translations between the dialects that model servers and their upstreams speak."""
