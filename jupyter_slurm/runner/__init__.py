"""What runs outside this package: inside a job, and beside sbatch. Single files that import nothing of ours."""
