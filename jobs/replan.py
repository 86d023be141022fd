"""Choose bases again for what has arrived: the program to run by cron, on a Ray cluster or not."""

import typer

from tstore.cli.replan import replan_command

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(replan_command)
    app()
