"""Benchmarks that travel: packed as one artefact, pushed to a registry, pulled by digest, in one file."""
