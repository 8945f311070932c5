"""Editors on nodes: hosts for ssh that start a job when they are first connected to."""
