"""What can be looked at and clicked on in a notebook, made of ipywidgets: jobs, forms, sessions.

What they show comes from the agent's event stream, in the background, also while a cell runs; they never ask Slurm.
Nothing here is imported before somebody wants a widget: ipywidgets takes its time.
"""
