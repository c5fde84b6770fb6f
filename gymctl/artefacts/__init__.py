"""Benchmarks that travel: packed as one artefact, pushed to a registry, pulled by digest, bundled in a file."""
