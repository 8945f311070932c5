"""Container images on a cluster, and their build contexts."""
