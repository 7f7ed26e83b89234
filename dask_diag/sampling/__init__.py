"""Samples of running tasks: what they wait for, and their stacks."""
