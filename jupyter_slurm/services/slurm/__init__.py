"""Queries to one Slurm, at a limited rate."""
