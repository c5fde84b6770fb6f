"""Rows -> records: dataset, expansion, bounded collection, files. Knows neither Docker nor config."""
