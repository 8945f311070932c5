"""Remote shells: sessions, files and detached commands behind SSH."""
