"""Creation of Python environments on the cluster, and their inventory."""
