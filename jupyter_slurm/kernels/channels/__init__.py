"""Messages between a Jupyter client and the remote kernel."""
