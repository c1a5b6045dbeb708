"""Deliberate faults, each in one place, with which it is shown that the simulator's checks find such faults."""
