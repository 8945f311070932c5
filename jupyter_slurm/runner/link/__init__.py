"""The link between keeper and kernel proxy, and its handshake."""
