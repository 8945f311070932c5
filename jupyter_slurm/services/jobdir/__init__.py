"""The job directory: the durable folder of a job, and what is read from it."""
