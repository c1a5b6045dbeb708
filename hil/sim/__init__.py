"""The simulator: many clients, agents and nodes on one virtual clock, through the real machines, codec and session rules."""
