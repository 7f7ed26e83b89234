"""Writers of files for other programs, a module for each kind of format."""
