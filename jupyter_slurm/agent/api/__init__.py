"""The HTTP API of the agent: application, routes, validation and event streams."""
