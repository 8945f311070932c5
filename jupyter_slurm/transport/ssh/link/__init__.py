"""SSH links: persistent connections, and their threads."""
