"""Ports of other machines, brought here: for this user only."""
