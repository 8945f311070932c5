"""Kernels on nodes: what the kernelspec starts on this machine, and what the Jupyter server does with it."""
