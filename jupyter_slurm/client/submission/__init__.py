"""Submission requests: options, variables, sweeps, dependencies and staging."""
