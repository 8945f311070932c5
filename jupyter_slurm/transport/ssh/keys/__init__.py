"""SSH keys: public and private keys, agents, identities and revocation."""
