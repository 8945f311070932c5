"""Magics of container images and Python environments, which jobs make."""
