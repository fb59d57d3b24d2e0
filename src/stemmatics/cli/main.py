"""The stemma command. Modules are imported when a command runs, so that help is quick."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from stemmatics import __version__
from stemmatics.core.errors import UserError

_INTERRUPTED = 130
# Iterations that a waiting libgomp thread spins before it sleeps; LOG.md has the measurements.
SPINS = "1000"

app = typer.Typer(
    name="stemma",
    help="What did training change in a language model, how much of it can be undone, and how sure is that?",
    epilog="Exit status: 0 done, 1 a check failed or something was refused or failed, 2 wrong use, "
    "3 a --fail-if of compare holds, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        print(f"stemma {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What did training change in a language model?"""
    del version


def _register() -> None:
    """Import the command files; each only parses, calls and prints."""
    if app.registered_commands:
        return  # main may run several times in one process; registering again would slow each run down
    from stemmatics.cli import (
        analyse,
        cache,
        check,
        compare,
        demo,
        export,
        floor,
        init,
        ladder,
        merge,
        prune,
        report,
        run,
        score,
        show,
        status,
        tokens,
        verify,
    )

    commands = (
        *(demo, init, check, score, compare, tokens, run, status, ladder, show, export, merge, prune, cache),
        *(analyse, floor, verify, report),
    )
    for module in commands:
        module.register(app)


def main() -> None:
    """Run the command. An error is ``error: WHAT. WHY. FIX`` on stderr and an exit status."""
    # Threads that wait for one another spin for a little and then sleep: spinning long slows down all other
    # processes, and sleeping at once doubles the time of small models. Must be set before torch loads.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    _register()
    try:
        code = app(standalone_mode=False, prog_name="stemma")
    except UserError as error:
        _print_error(str(error))
        code = error.code
    except TyperException as error:
        # an unknown option or a missing argument; without any argument the message is the help
        message = error.format_message()
        if message.startswith("Usage:"):
            print(message)
        else:
            _print_error(f"{message.rstrip('.')}. Invalid command line. Add --help to see the options.")
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        # the reader (head, for instance) has closed the pipe
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - replaces a closed stream
        code = 0
    except OSError as error:
        path, reason = error.filename or "a file", error.strerror or error
        _print_error(f"can't read or write {path}. {reason}. Check the path and its permissions.")
        code = 1
    if code == _INTERRUPTED:
        # typer may turn the interrupt into this status by itself
        _print_error("interrupted. Finished work is kept. Run the same command again to continue.")
    sys.exit(code if isinstance(code, int) else 0)


def _print_error(text: str) -> None:
    print(f"error: {' '.join(text.split())}", file=sys.stderr)


if __name__ == "__main__":
    main()
