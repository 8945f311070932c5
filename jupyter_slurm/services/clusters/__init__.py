"""Clusters: composition and use of the services of one cluster."""
