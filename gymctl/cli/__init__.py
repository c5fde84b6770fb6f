"""Flags in, text out; one file per command; the only place that prints."""
