"""Server folders -> build contexts, content-addressed tags, builds."""
