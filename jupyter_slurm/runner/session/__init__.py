"""Session servers in a job: Jupyter, other commands, and the TLS door to them."""
