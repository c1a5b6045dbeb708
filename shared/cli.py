"""The command `headtail`: finds the verbs of all packages and turns every ending into an exit status.

The list of verbs is built from data (`shared.commands`), so `headtail --help` imports no verb; only the verb that runs is
loaded, and its options are typer's. Each ending has one meaning: 0 done, 1 the verb says no, 2 the user's mistake, or a
file, an output or something else of the system that refuses (one line), 4 nothing satisfies what was demanded (one line), 70
a bug of ours (with its story), 130 interrupted, by Ctrl-C or SIGTERM. Where the output's reader has left, there is no line.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from typing import Annotated, NoReturn, cast

import typer

from shared.commands import Command
from shared.errors import HeadtailError, InvariantBroken, Unsatisfiable, UserError
from shared.installation import check_installation
from shared.printable import printable
from shared.standard_streams import OutputError, name_output, open_missing_streams, unwritten

GROUP = "headtail.commands"
NO, USAGE, IMPOSSIBLE, BUG, INTERRUPTED = 1, 2, 4, 70, 130


def main() -> None:
    """Entry point of the installed script; ends the process with the status of the verb."""
    arguments = sys.argv[1:]
    open_missing_streams()
    name_output()
    with endings():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a verb cleans up; services have their own
        try:
            if chosen(arguments):
                check_installation()
            run(arguments, commands(entry_points(group=GROUP)))
        finally:
            sys.stdout.flush()  # while a failure can still be told


def commands(points: Iterable[EntryPoint]) -> tuple[Command, ...]:
    """All verbs of the given entry points, by name.

    Raises `InvariantBroken` where two packages claim one name.
    """
    found: dict[str, Command] = {}
    for point in points:
        for command in cast(tuple[Command, ...], point.load()):
            if command.name in found:
                raise InvariantBroken(f"the verb {command.name!r} is defined twice, the second time by {point.value}")
            found[command.name] = command
    return tuple(found[name] for name in sorted(found))


def chosen(arguments: Sequence[str]) -> str:
    """The verb that the arguments name, or the empty string."""
    return next((argument for argument in arguments if not argument.startswith("-")), "")


def missing(command: Command) -> tuple[str, ...]:
    """The required modules of `command` that are not installed. Imports none of them."""
    return tuple(module for module in command.requires if find_spec(module) is None)


def hint(command: Command) -> str:
    """What to install for a verb whose requirements are missing."""
    return f"needs the extra {command.extra!r}: pip install 'headtail[{command.extra}]'"


def run(arguments: Sequence[str], verbs: Sequence[Command]) -> None:
    """Parse `arguments`, run the verb they name and raise `SystemExit` with its status."""
    app = typer.Typer(
        name="headtail",
        help="Runs neural networks partly on a vehicle and partly in a nearby cloud, and answers every request in time.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_top)
    wanted = chosen(arguments)
    for verb in verbs:
        if missing(verb):
            settings = {
                "ignore_unknown_options": True,
                "allow_extra_args": True,
                "help_option_names": cast(list[str], []),
            }
            summary = _plain(f"{verb.summary} ({hint(verb)})")
            app.command(verb.name, help=summary, context_settings=settings)(_refusal(verb))
        elif verb.name == wanted:
            function = _load(verb)
            if inspect.signature(function, eval_str=True).return_annotation is typer.Typer:
                app.add_typer(cast(Callable[[], typer.Typer], function)(), name=verb.name, help=_plain(verb.summary))
            else:
                app.command(verb.name, help=_plain(inspect.getdoc(function) or verb.summary))(guarded(function))
        else:
            app.command(verb.name, help=_plain(verb.summary))(_unused)
    app(list(arguments), prog_name="headtail")


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """`function` with `endings` around it. Inside typer's own handling, which knows fewer endings."""

    @functools.wraps(function)
    def wrapper(*args: object, **options: object) -> None:
        with endings():
            function(*args, **options)

    return wrapper


@contextmanager
def endings() -> Generator[None, None, None]:
    """Turn the errors of `shared.errors`, what the system refuses (files, output), an interrupt and whatever nobody foresaw
    into a message on stderr and `SystemExit`. Typer's own endings pass."""
    try:
        yield
    except UserError as error:
        _end(USAGE, str(error))
    except InvariantBroken as error:
        story = "".join(traceback.format_exception(error))
        _end(BUG, f"a rule of headtail itself does not hold, which is a bug worth reporting: {error}", story)
    except OSError as error:
        unwritten(sys.stdout)
        if isinstance(error, OutputError) and error.reader_left:
            raise SystemExit(USAGE) from None
        where = f"{error.filename}: " if error.filename else ""
        _end(USAGE, f"{where}{error.strerror or str(error) or type(error).__name__}")
    except Unsatisfiable as error:
        _end(IMPOSSIBLE, str(error))
    except HeadtailError as error:
        _end(NO, str(error))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise  # typer's own endings
    except Exception as error:  # whatever nobody foresaw
        story = "".join(traceback.format_exception(error))
        what = f"{type(error).__name__}: {error}"
        _end(BUG, f"a bug of headtail; please report it to its maintainers with the lines above: {what:.400}", story)


def _end(status: int, message: str, story: str = "") -> NoReturn:
    with suppress(OSError):
        typer.echo(printable(f"{story}headtail: {' '.join(message.splitlines())}"), err=True)
    unwritten(sys.stderr)
    raise SystemExit(status)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


def _load(verb: Command) -> Callable[..., None]:
    module, _, attribute = verb.target.partition(":")
    return cast(Callable[..., None], getattr(importlib.import_module(module), attribute))


def _refusal(verb: Command) -> Callable[[], None]:
    def refuse() -> None:
        _end(USAGE, f"{verb.name} {hint(verb)}")

    return refuse


def _unused() -> None:
    raise InvariantBroken("a verb ran that was not loaded")


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        typer.echo(f"headtail {version('headtail')}")
    except PackageNotFoundError:
        _end(USAGE, "headtail is not installed in this environment: pip install headtail")
    raise SystemExit(0)


def _top(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass
