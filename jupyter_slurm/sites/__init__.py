"""Site profiles: facts about a cluster, and how to connect to it."""
