"""Authentication of the user at an SSH server."""
