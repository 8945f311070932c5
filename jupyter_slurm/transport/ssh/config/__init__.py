"""SSH configuration: OpenSSH's files, as OpenSSH and as paramiko read them, and ProxyJump."""
