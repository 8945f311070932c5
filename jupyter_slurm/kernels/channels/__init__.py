"""Messages between a Jupyter client and the kernel on a node."""
