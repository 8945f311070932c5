"""Sessions: remote Jupyter servers, and their login pages."""
