"""The task plot: every task in its worker's lane, also of a million."""
