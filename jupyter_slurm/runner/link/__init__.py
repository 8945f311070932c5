"""Link between keeper and proxy, and its handshake."""
