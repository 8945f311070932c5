"""Remote shells: sessions, files and detached programs behind SSH."""
