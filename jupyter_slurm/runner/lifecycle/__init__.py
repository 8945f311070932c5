"""Life of a job: resumption, staging and usage."""
