"""The report: one page about a recording."""
