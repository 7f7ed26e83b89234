"""From what was captured to the tables of a Recording: at the end, or incrementally."""
