"""Hosting of the agent: its process, socket, leader election and discovery."""
