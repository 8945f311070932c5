"""Diagnostics: the checks of the doctor, and its probe job."""
