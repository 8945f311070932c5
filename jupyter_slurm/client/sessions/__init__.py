"""Sessions as objects of the user."""
