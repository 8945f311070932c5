"""Queries to Slurm: the command line of each, and the parser of its answer."""
