"""The job directory: durable folder of a job, and its readers."""
