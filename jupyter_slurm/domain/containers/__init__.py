"""Container images: references, build files and build contexts."""
