"""Tunnels: ports of nodes on this computer."""
