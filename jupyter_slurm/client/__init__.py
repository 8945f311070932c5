"""What the front doors share: the job handle, live output, tables and how they are drawn."""
