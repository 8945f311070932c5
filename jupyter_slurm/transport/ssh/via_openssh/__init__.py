"""SSH links by the OpenSSH client of this machine."""
