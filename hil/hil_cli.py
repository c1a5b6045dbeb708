"""`headtail hil`: the verbs of the rig that stands in for the network between a device and its nodes."""

from __future__ import annotations

import typer

from hil.emulator import cli as emulator
from hil.links import cli as links
from hil.regret.live_cli import live
from hil.scenarios import cli as rig
from shared.cli import guarded


def group() -> typer.Typer:
    """The group of verbs; `hil.commands` names this function."""
    app = typer.Typer(
        help="Real agents, nodes and faults over an emulated network: scenarios, traces of links, packets.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for verb in (links.fit, links.generate, links.compare, emulator.check, rig.scenarios, rig.run):
        app.command(verb.__name__)(guarded(verb))
    app.command("regret")(guarded(live))
    return app
