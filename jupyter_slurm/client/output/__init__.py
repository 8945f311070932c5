"""Live output of jobs: text and rich output, followed and shown."""
