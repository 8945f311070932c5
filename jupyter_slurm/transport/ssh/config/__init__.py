"""SSH configuration: OpenSSH's files, as read by OpenSSH and by paramiko, and ProxyJump."""
