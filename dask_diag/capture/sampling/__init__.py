"""Samples tasks while they run: what they wait for, and their stacks."""
