"""Kernel keeper: an ipykernel in a job, and the messages to and from it."""
