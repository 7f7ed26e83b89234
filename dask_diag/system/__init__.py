"""CPU, memory and I/O of processes and threads, from the operating system."""
