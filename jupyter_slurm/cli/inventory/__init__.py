"""Commands that show what a cluster has: free resources, and usage."""
