"""Code, configuration and text without what looks like a secret."""
