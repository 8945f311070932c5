"""Results of jobs: output, values, records and usage reports."""
