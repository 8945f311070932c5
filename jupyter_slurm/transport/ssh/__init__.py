"""SSH transport: commands and files on a remote host."""
