"""`evalbus serve`: the server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from evalbus_server.cli.options import Db

Configuration = Annotated[
    Path | None, typer.Option(metavar="F", help="The configuration: YAML, JSON or TOML.", show_default=False)
]
Listen = Annotated[str | None, typer.Option(metavar="A", help="host:port or unix:/path [default: 127.0.0.1:50051].")]
Resume = Annotated[
    bool | None,
    typer.Option(
        "--resume/--no-resume", help="Go on with runs that the end of a server interrupted.", show_default=False
    ),
]


def serve(config: Configuration = None, listen: Listen = None, db: Db = None, resume: Resume = None) -> None:
    """Serve runs and datasets to other programs, over gRPC.

    SIGTERM and Ctrl-C end it in order: runs are interrupted, trials in flight
    get 10 s.
    """
    import asyncio

    from evalbus_server import app, logs
    from evalbus_server.settings import Serving, Settings, load_settings

    logs.set_up("info", lines_for_programs=True)
    settings = Settings() if config is None else load_settings(config)
    given = {"listen": listen, "db": None if db is None else str(db.resolve()), "resume": resume}
    settings = settings.model_copy(update={key: value for key, value in given.items() if value is not None})
    folder = Path.cwd() if config is None else config.resolve().parent
    asyncio.run(app.serve(Serving(settings, folder, os.environ)))
