"""Pure functions: a Recording in, a table out."""
