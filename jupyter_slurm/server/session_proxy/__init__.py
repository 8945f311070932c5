"""The proxy of remote sessions behind the Jupyter server."""
