"""Allocations of salloc, and the steps and kernels in them."""
