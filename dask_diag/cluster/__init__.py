"""Recording on a cluster of distributed."""
