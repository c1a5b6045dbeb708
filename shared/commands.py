"""How a package adds verbs to the command `headtail`.

Each package names its verbs in a tuple `COMMANDS`, which the entry-point group `headtail.commands` points at:

    COMMANDS = (
        Command("edge", "Run the edge agent.", "edge.agent_cli:main", extra="edge", requires=("zmq", "onnxruntime")),
    )

A verb is data, so that `headtail --help` lists all of them without importing what any of them needs. The module of
`target` is imported only when its verb runs or its own help is asked for. That is why a module that holds `COMMANDS`
imports nothing but this one; a registry filled by decorators was rejected, since it would import every verb to list one.

The target is a plain function with typer's annotations, whose docstring is the verb's help:

    def main(config: Annotated[Path, typer.Option(help="The configuration file.")], verbose: bool = False) -> None:

Or it is a function without parameters that returns a `typer.Typer`, for a verb that has verbs of its own (each of them passed
through `shared.cli.guarded`); it is told from the others by what it is annotated to return.

It returns None or raises: `UserError` and `OSError` become one line and exit status 2, `InvariantBroken` its story and 70, an
interrupt 130, and `typer.Exit(code)` any other status.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One verb of `headtail`.

    `summary` is the line in the list of verbs. `target` is `module:function`. `extra` is the installation extra (or
    several, as pip takes them: `cloud,plan`) that brings `requires`, the top-level modules without which the verb cannot
    run; the list of verbs names the extra where one of them is missing, and running the verb then ends with that hint and
    status 2.
    """

    name: str
    summary: str
    target: str
    extra: str = ""
    requires: tuple[str, ...] = ()
