"""``jupyter slurm``: the command line."""
