"""SSH links through paramiko, in this process."""
