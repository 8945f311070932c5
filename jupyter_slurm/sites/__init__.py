"""Site profiles: what is known of a cluster, and in which way it is reached."""
