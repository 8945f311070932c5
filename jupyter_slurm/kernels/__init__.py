"""Remote kernels: the program of the kernelspec on this computer, and its provisioner in the Jupyter server."""
