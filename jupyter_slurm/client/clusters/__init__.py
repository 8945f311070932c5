"""Clusters as objects of the user: options, names, resources and usage."""
