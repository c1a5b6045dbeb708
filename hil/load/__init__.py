"""A load generator for agents and nodes: what it sends and when, what came of it, and whether it was itself too slow."""
