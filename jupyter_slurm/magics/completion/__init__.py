"""Completion of magic lines."""
