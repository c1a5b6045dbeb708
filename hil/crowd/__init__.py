"""Many simulated edges on a few nodes, one of which dies and returns."""
