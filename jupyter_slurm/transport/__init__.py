"""Transports for commands, files and streams. No layer above opens a process, a socket or a file of a job."""
