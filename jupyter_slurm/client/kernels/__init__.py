"""Kernels on nodes: kernelspecs, and notebooks that move between kernels."""
