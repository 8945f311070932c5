"""The local transport: processes, files and streams of this computer."""
