"""SSH links through the OpenSSH client of this computer."""
