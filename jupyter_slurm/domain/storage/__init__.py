"""Storage of a cluster: free space and quotas."""
