"""Advice and warnings: feasibility, capacity, reasons for waiting, and ends of jobs."""
