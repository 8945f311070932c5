"""Options of the Slurm commands: tables, parser, help and choices."""
