"""The life of a job: resumption, staging and usage."""
