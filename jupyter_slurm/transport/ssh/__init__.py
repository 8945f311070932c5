"""Commands and files on a machine behind SSH."""
