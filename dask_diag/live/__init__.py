"""A recording while it is made: followed from another process, in a terminal or a browser."""
