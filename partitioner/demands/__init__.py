"""What a plan has to obey, and what it is chosen by."""
