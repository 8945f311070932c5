"""Terminals on a login node, which outlive the connection."""
