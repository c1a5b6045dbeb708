"""What a plan was weighed by, kept beside it (`weighing.json`)."""
