"""Rendering: text and HTML of data, without the agent."""
