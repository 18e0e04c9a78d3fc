"""`evalbus cache`: the answers of targets that are remembered for runs with `cache`. Imports nothing heavy."""

from __future__ import annotations

from typing import Annotated

import typer

from evalbus_server.cli.options import Db, Json, Server, one_place


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Forget them: targets are asked again.")] = False,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Count the answers that runs remember, or forget them.

    An experiment with `cache: true` remembers them.
    """
    one_place(db, server)
    from evalbus_server.cli import remembered
    from evalbus_server.cli.reading import Place

    return remembered.cache(Place(db, server), clear=clear, as_json=as_json)
