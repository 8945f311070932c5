"""Ranks of a parallel job: launchers, frames of their output, torchrun and Ray."""
