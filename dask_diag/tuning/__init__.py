"""Settings tried on an unchanged program, in child processes."""
