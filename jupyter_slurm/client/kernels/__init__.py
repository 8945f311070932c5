"""Remote kernels: kernelspecs, and notebooks that move between kernels."""
