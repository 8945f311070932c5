"""Allocations as objects of the user, and cells that run in them."""
