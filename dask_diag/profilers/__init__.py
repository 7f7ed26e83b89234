"""The public classes: what users enter or register around a computation."""
