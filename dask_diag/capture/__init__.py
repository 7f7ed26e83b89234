"""Computations while they run, and the tables made of what was recorded."""
