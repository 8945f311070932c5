"""Transfers of files to, from, between and within clusters, as a notebook and a terminal request them."""
