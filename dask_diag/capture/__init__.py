"""Recording of computations while tasks run, and the tables made of the rows."""
