"""What `headtail report` writes: one page with charts of every way."""
