"""Rows -> records: dataset, expansion, bounded collection, the files of a run. Knows neither Docker nor config."""
