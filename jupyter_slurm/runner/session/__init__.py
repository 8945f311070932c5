"""Session servers in a job: Jupyter, other commands, and their TLS door."""
