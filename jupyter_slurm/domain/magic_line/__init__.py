"""The magic line: its parser, and Python values in it."""
