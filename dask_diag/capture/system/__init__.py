"""What processes use, and on what machine, from the operating system."""
