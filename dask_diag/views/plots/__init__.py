"""The plots, a file for each."""
