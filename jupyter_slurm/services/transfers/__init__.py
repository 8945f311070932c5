"""Transfers of files between this computer and clusters, and between and within clusters."""
