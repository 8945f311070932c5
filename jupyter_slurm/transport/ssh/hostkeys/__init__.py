"""Host keys: known_hosts, and unknown hosts."""
