"""Simulate a recorded program with a change."""
