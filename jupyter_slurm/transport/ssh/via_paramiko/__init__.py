"""SSH links by paramiko, inside this process."""
