"""Commands about Python environments on a cluster, and jobs of the terminal that make something."""
