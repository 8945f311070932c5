"""Host keys: known_hosts, and hosts that are not known yet."""
