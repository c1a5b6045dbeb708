"""What a way takes: its parts, where their times come from, and what they come to under conditions."""
