"""`headtail doctor`: how well this host can keep its promises in time.

Facts are read (`tree` from /proc and /sys, `machine` from the running system, `timing` by measuring, `gpu` from NVIDIA's
library), judged without touching anything (`verdicts`, `promise`) and written (`page`, or as JSON). Whatever cannot be
read is None, never a guess.
"""
