"""Goodput of schedulers in virtual time: devices, models, arrivals, policies, and the highest rate that is served on time."""
