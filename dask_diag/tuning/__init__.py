"""Tries settings on an unchanged program, in child processes, and finds out which is faster."""
