"""Container images: references, build files and what a build takes along."""
