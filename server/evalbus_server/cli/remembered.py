"""The work of `evalbus cache`: answers of targets that are remembered, in a database or at a server."""

from __future__ import annotations

import asyncio
import os

from evalbus_server import logs
from evalbus_server.app import embedded
from evalbus_server.cli.client import Remote
from evalbus_server.cli.exits import ExitCode
from evalbus_server.cli.figures import count
from evalbus_server.cli.reading import Place
from evalbus_server.cli.report import console, print_json
from evalbus_server.settings import database_path
from evalbus_server.store import open_reader


def cache(place: Place, *, clear: bool, as_json: bool) -> int:
    """Say how many answers are remembered, or forget them."""
    logs.set_up("warning")
    answers = asyncio.run(_at_server(place, clear) if place.server is not None else _here(place, clear))
    if as_json:
        print_json({"answers": answers, "cleared": clear})
    else:
        told = f"{count(answers)} answer{'' if answers == 1 else 's'}"
        console().print(f"{told} forgotten" if clear else f"{told} remembered", markup=False, highlight=False)
    return ExitCode.PASS


async def _at_server(place: Place, clear: bool) -> int:
    async with Remote(place.server or "", os.environ) as server:
        return await server.cached(clear=clear)


async def _here(place: Place, clear: bool) -> int:
    path = database_path(place.db, os.environ)
    with open_reader(path) as reader:  # refuses a file that is not there
        if not clear:
            return reader.cached_count()
    async with embedded(path) as app:
        return await app.runs.clear_cache()
