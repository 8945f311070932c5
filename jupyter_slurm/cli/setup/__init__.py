"""Commands that set up a cluster: site profiles, SSH keys and OpenSSH configuration."""
