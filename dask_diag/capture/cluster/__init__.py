"""Capture on a cluster of distributed: see ``ARCHITECTURE.rst``."""
