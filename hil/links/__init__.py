"""Link traces: what a link did over time, models of it, and how to fit, play and compare them."""
