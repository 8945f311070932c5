"""Submission: from a request to sbatch, exactly once."""
