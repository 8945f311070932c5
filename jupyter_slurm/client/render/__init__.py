"""Rendering of data as text and HTML, without the agent."""
