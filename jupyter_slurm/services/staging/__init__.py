"""Staging: folders sent with a job, and copied back."""
