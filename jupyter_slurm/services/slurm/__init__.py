"""Queries to one Slurm, at a bounded rate."""
