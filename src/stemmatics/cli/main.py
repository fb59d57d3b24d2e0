"""The stemma command. Rooms are imported when a command runs, so that help is quick."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from stemmatics import __version__
from stemmatics.core.errors import UserError

_INTERRUPTED = 130
# Rounds that a waiting thread of libgomp looks before it sleeps; LOG.md has the trials.
SPINS = "1000"

app = typer.Typer(
    name="stemma",
    help="What did training change in a language model, how much of it can be undone, and how sure is that?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
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
        return  # main is called again in one process; registering anew would slow each call down
    from stemmatics.cli import (
        analyse,
        check,
        demo,
        floor,
        init,
        ladder,
        look,
        maintain,
        report,
        run,
        score,
        verify,
    )

    for module in (demo, init, check, score, run, ladder, look, maintain, analyse, floor, verify, report):
        module.register(app)


def main() -> None:
    """Run the command. An error is ``error: WHAT. WHY. FIX`` on stderr and an exit status."""
    # Threads that wait for one another spin a little and then sleep: spinning long starves whatever else
    # runs, and sleeping at once doubles the time of small models. Set before torch loads.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    _register()
    try:
        code = app(standalone_mode=False, prog_name="stemma")
    except UserError as error:
        _say(str(error))
        code = error.code
    except TyperException as error:
        # wrong use: an unknown option, a missing argument; without any argument the message is the help
        message = error.format_message()
        if message.startswith("Usage:"):
            print(message)
        else:
            _say(f"{message.rstrip('.')}. The command can't be read so. Type --help to see its options.")
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        # the reader (head, say) has gone; nothing is left to say
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - replaces a closed stream
        code = 0
    except OSError as error:
        where, why = error.filename or "a file", error.strerror or error
        _say(f"{where} can't be used. {why}. Check the path and its rights.")
        code = 1
    if code == _INTERRUPTED:
        # typer may turn the interrupt into this status by itself
        _say("interrupted. What was finished is kept. Type the same command to go on.")
    sys.exit(code if isinstance(code, int) else 0)


def _say(text: str) -> None:
    print(f"error: {' '.join(text.split())}", file=sys.stderr)


if __name__ == "__main__":
    main()
