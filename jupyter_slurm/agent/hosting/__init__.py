"""Where the agent lives: its process, its socket, its election and its discovery."""
