"""Terminals of the user on the login nodes, and in running jobs."""
