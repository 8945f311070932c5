"""Widgets for a notebook, made of ipywidgets: jobs, forms, sessions.

Their data comes from the agent's event stream, in the background, also while a cell runs; they never query Slurm. This
package imports its modules at first use, because the import of ipywidgets is slow.
"""
