"""Containers of a job: runtimes, images, builds and their locks."""
