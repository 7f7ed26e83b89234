"""Recordings in files: saved at once or incrementally, loaded without executing anything."""
