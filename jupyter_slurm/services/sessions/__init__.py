"""Sessions: remote Jupyter servers, and their log-in pages."""
