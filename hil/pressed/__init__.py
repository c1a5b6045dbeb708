"""Edges of which some can do without the cloud, on one node that is asked too much."""
