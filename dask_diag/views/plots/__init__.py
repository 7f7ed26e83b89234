"""The plots, a file or a folder for each."""
