"""SSH links: connections that persist, and their threads."""
