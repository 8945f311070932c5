"""SSH keys: public and private ones, agents, identities and revocation."""
