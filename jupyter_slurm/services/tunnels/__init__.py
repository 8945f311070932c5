"""Tunnels: ports of nodes on this machine."""
