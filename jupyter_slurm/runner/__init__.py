"""What runs inside a job: single files that import nothing of ours."""
