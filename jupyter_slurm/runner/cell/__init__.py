"""Cells of a job: IPython or plain Python, displays and sweeps."""
