"""Remote kernels: the program that the kernelspec starts on this machine, and its provisioner in the Jupyter server."""
