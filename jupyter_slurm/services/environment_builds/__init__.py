"""Python environments that jobs make on a cluster."""
