"""`evalbus proto`: the contract, for languages that have no SDK here."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

import evalbus_server
from evalbus_server.cli.options import example

app = typer.Typer(help="The protobuf contract.", rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """A group, though it has one command."""


@app.command(epilog=example("evalbus proto export contract"))
def export(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; made if it is missing.")]) -> None:
    """Write the .proto files to a folder.

    They compile with protoc and that folder as include path.
    """
    source = contract()
    for file in sorted(source.rglob("*.proto")):
        target = folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        print(target)


def contract() -> Path:
    """Where the .proto files are: in the package when it is installed, at the root of a checkout otherwise."""
    package = Path(evalbus_server.__file__).parent
    shipped = package / "proto"
    return shipped if shipped.is_dir() else package.parents[1] / "proto"
