"""Moves of notebooks between kernels, with their variables."""
