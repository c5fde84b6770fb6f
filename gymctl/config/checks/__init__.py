"""What a document must be, part by part; most checks report to one collector."""
