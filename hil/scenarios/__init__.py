"""Scenarios of hardware in the loop: real agent, nodes and client, a network of ours between them, faults at stated times.

`scenario`, `check` and `find` are the file, `timeline` says what happens when, `stage`, `strikes` and `player` let it
happen over one of the backends (`emulated`, `proxied`, `remote`), `figures`, `oracle` and `judge` hold what came of it
against the budgets, `report`, `junit` and `page` tell it. `run` puts them together, `cli` is `headtail hil run`.
"""
