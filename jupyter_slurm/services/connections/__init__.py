"""Connections: logins to clusters, their prompts and their clients."""
