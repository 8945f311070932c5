"""Where commands run and bytes travel. Nothing above this layer opens a process, a socket or a job's file."""
