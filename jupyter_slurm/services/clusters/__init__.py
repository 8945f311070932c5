"""Clusters: one cluster, composed of the services below it."""
