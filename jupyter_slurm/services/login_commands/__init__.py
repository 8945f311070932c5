"""Commands of the user on the login node, in the user's own login shell."""
