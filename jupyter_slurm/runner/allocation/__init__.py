"""Allocations that stay open, and the steps and processes in them."""
