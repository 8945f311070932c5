"""Live output of jobs: text, rich output, and how both are followed and shown."""
