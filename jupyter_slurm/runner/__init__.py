"""What runs outside this package: on the node inside a job, and beside sbatch. Single files that import nothing of ours."""
