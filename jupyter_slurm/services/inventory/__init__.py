"""The inventory of a cluster: facts, resources, jobs of all users, and usage."""
