"""Tunnels: local ports for ports of remote hosts, for this user only."""
