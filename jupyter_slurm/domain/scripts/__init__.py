"""Batch scripts: cells, headers, environments, sweeps and resubmission."""
