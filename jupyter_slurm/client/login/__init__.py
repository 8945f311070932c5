"""Logins of the user: prompts, and the watch over a silent link."""
