"""Command line ``jupyter slurm``."""
