"""Files of the user on a cluster: list, read, write, change."""
