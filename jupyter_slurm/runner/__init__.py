"""Programs that run inside a job: single files that import nothing else of jupyter_slurm."""
