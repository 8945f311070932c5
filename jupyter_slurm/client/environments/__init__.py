"""Python environments on a cluster as the user asks for them."""
