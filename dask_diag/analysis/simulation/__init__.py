"""One simulator: what a recorded program would take if something were different."""
