"""Environments of jobs: env=, Python, and Jupyter on nodes."""
