"""Connections: log-ins to clusters, their prompts and their clients."""
