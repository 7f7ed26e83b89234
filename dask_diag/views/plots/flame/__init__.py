"""The flame graph: stacks, in a page and in words."""
