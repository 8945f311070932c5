"""Tunnels as objects of the user."""
