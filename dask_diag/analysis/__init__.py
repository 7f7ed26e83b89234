"""Pure functions: from a Recording to a table."""
