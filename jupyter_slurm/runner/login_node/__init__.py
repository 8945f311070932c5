"""Programs for the login node, sent as text: single files."""
