"""Forwarding to nodes through an SSH link."""
