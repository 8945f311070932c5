"""Tracked jobs: their state, its sources, and their form in the API."""
