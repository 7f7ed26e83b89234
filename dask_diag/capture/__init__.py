"""What runs while the user's tasks run: cheap, thread-safe, and blind to analysis and views."""
