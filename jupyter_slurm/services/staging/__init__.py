"""Staging: folders that travel with a job, and back."""
