"""Container images as objects of the user, and their Python packages."""
