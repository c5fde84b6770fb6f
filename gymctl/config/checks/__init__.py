"""What a resolved document must be, part by part; everything reports to one collector."""
