"""Allocations of salloc, with their steps and kernels."""
