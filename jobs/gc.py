"""Remove what nothing has needed for a grace period: the program to run by cron."""  # noqa: A005

# `gc` is built into the interpreter, which looks there before any path: nothing is shadowed.

import typer

from tstore.cli.removing import gc_command

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(gc_command)
    app()
