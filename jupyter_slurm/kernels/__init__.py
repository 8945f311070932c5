"""Remote kernels: the program that the kernelspec starts on this computer, and its provisioner in the Jupyter server."""
