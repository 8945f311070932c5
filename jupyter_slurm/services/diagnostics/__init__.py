"""Diagnostics: checks of the doctor, and its probe job."""
