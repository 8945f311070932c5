"""Held allocations, and the steps and processes in them."""
