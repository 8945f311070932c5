"""Clients of the agent's HTTP API, for front ends."""
