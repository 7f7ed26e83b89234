"""Findings: what cost time, or may mislead, and what to do about it."""
