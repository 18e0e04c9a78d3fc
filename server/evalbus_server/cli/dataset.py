"""`evalbus dataset`: bring items in, look at them, change them, take them out. Imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from evalbus_server.cli.options import Db, Json, Server, example, one_place

app = typer.Typer(help="Import, show, change, compare and export datasets.", rich_markup_mode=None)

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The dataset.")]
Version: TypeAlias = Annotated[
    int | None, typer.Option("--version", metavar="N", min=0, help="As of this version [default: the newest].")
]
Input: TypeAlias = Annotated[str | None, typer.Option("--input", metavar="T", help="What the item asks.")]
InputJson: TypeAlias = Annotated[str | None, typer.Option("--input-json", metavar="JSON", help="The same as JSON.")]
Expected: TypeAlias = Annotated[str | None, typer.Option("--expected", metavar="T", help="The expected answer.")]
ExpectedJson: TypeAlias = Annotated[
    str | None, typer.Option("--expected-json", metavar="JSON", help="The same as JSON.")
]
Metadata: TypeAlias = Annotated[str | None, typer.Option("--metadata", metavar="JSON", help="A JSON object.")]
Tags: TypeAlias = Annotated[list[str] | None, typer.Option("--tag", metavar="T", help="A tag. Repeatable.")]
ItemsFile: TypeAlias = Annotated[
    Path | None, typer.Option("--file", metavar="F", help="Items as JSON lines; - for standard input.")
]


class Format(StrEnum):
    """What a file is; the names of `dataset.source.Format`."""

    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    YAML = "yaml"
    PARQUET = "parquet"


class Foreign(StrEnum):
    """Forms of other systems; the names of `dataset.foreign.FOREIGN`."""

    INSPECT_AI = "inspect_ai"
    PROMPTFOO = "promptfoo"
    OPENAI_EVALS = "openai_evals"
    VOLTAGENT = "voltagent"
    MASTRA = "mastra"
    RESULTS = "results"
    CHAT_COMPLETIONS = "chat_completions"


class ExportFormat(StrEnum):
    """What an export is written as."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


@app.command("import", epilog=example("evalbus dataset import support items.csv --map input=question"))
def import_(  # noqa: PLR0913  # each is an option
    name: Name,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file, or - for standard input.")],
    maps: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=PATH", help="Where a field comes from, as in input=question. Repeatable."),
    ] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Take the good rows and list the bad ones.")] = False,
    format: Annotated[Format | None, typer.Option(help="What the file is [default: its suffix says it].")] = None,
    foreign: Annotated[
        Foreign | None,
        typer.Option("--from", metavar="SYSTEM", case_sensitive=False, help="Rows are in this system's form."),
    ] = None,
    records: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where the rows stand in a JSON document; . for the document.")
    ] = None,
    join: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A second file whose rows are joined by their ids.")
    ] = None,
    encoding: Annotated[str | None, typer.Option(metavar="E", help="Such as cp1252 [default: UTF-8].")] = None,
    delimiter: Annotated[
        str | None, typer.Option(metavar="C", help="What separates CSV columns [default: found].")
    ] = None,
    ids: Annotated[
        str, typer.Option(metavar="HOW", help="Make missing ids of the content, or of the position.")
    ] = "content",
    shuffle_choices: Annotated[
        int | None, typer.Option(metavar="SEED", min=0, help="Put the choices of each item in another order.")
    ] = None,
    tag: Tags = None,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Make what a file holds the newest version of a dataset.

    It is all or nothing unless --partial. The same content again is no new version.
    """
    one_place(db, server)
    from evalbus_server.cli import datasets_import
    from evalbus_server.cli.datasets_place import Where

    wanted = datasets_import.Import(
        name=name,
        file=file,
        maps=tuple(maps or ()),
        partial=partial,
        format=None if format is None else format.value,
        foreign=None if foreign is None else foreign.value,
        records=records,
        join=join,
        encoding=encoding,
        delimiter=delimiter,
        ids=ids,
        shuffle_choices=shuffle_choices,
        tags=tuple(tag or ()),
    )
    return datasets_import.import_file(Where(db, server), wanted, as_json=as_json)


@app.command("list", epilog=example("evalbus dataset list"))
def list_datasets(db: Db = None, server: Server = None, as_json: Json = False) -> None:
    """List datasets by name."""
    one_place(db, server)
    from evalbus_server.cli import datasets_show
    from evalbus_server.cli.datasets_place import Where

    datasets_show.show_list(Where(db, server), as_json=as_json)


@app.command(epilog=example("evalbus dataset show support --version 2 --limit 5"))
def show(  # noqa: PLR0913  # each is an option
    name: Name,
    item: Annotated[str | None, typer.Argument(metavar="[ITEM]", help="Only this item, whole.")] = None,
    version: Version = None,
    tag: Tags = None,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="So many items.")] = 10,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show a dataset and its first items, or one item."""
    one_place(db, server)
    from evalbus_server.cli import datasets_show
    from evalbus_server.cli.datasets_place import Where

    where, tags = Where(db, server), tuple(tag or ())
    if item is not None:
        datasets_show.show_item(where, name, version, item, as_json=as_json)
    else:
        datasets_show.show_dataset(where, name, datasets_show.Chosen(version, tags, limit), as_json=as_json)


@app.command(epilog=example("evalbus dataset export support --out support.jsonl"))
def export(  # noqa: PLR0913  # each is an option
    name: Name,
    version: Version = None,
    format: Annotated[ExportFormat, typer.Option(help="What to write.")] = ExportFormat.JSONL,
    out: Annotated[Path | None, typer.Option(metavar="F", help="Where to [default: stdout].")] = None,
    tag: Tags = None,
    raw: Annotated[bool, typer.Option("--raw", help="CSV: leave cells as they are that look like formulas.")] = False,
    bom: Annotated[bool, typer.Option("--bom", help="CSV: begin with a byte-order mark, for spreadsheets.")] = False,
    db: Db = None,
    server: Server = None,
) -> None:
    """Write the items of a dataset to a file.

    Importing them again gives the same content.
    """
    one_place(db, server)
    from evalbus_server.cli import datasets_export
    from evalbus_server.cli.datasets_place import Where
    from evalbus_server.cli.datasets_show import Chosen

    chosen = Chosen(version, tuple(tag or ()), None)
    datasets_export.export(Where(db, server), name, chosen, datasets_export.Written(format.value, out, raw, bom))


@app.command(epilog=example("evalbus dataset create support --description 'from the help desk'"))
def create(  # noqa: PLR0913  # each is an option
    name: Name,
    description: Annotated[str, typer.Option(metavar="T", help="What it is.")] = "",
    metadata: Metadata = None,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Make a dataset without items."""
    one_place(db, server)
    from evalbus_server.cli import datasets_change
    from evalbus_server.cli.datasets_place import Where

    datasets_change.create(Where(db, server), name, (description, metadata), as_json=as_json)


@app.command(epilog=example("evalbus dataset describe support --description 'from the help desk'"))
def describe(  # noqa: PLR0913  # each is an option
    name: Name,
    description: Annotated[str | None, typer.Option(metavar="T", help="What it is.")] = None,
    metadata: Metadata = None,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Change what a dataset is said to be. There is no new version."""
    one_place(db, server)
    from evalbus_server.cli import datasets_change
    from evalbus_server.cli.datasets_place import Where

    datasets_change.describe(Where(db, server), name, (description, metadata), as_json=as_json)


@app.command(epilog=example("evalbus dataset add support --id a1 --input '2+2?' --expected 4"))
def add(  # noqa: PLR0913  # each is an option
    name: Name,
    file: ItemsFile = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Its id [default: made of the content].")] = None,
    input: Input = None,
    input_json: InputJson = None,
    expected: Expected = None,
    expected_json: ExpectedJson = None,
    metadata: Metadata = None,
    tag: Tags = None,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Add an item, or those of a file, as one new version.

    What was added before, just so, is left as it is; an id that other content has is refused.
    """
    one_place(db, server)
    from evalbus_server.cli import datasets_change
    from evalbus_server.cli.datasets_place import Where

    parts = datasets_change.Parts(id, input, input_json, expected, expected_json, metadata, tag)
    datasets_change.add(Where(db, server), name, file, parts, as_json=as_json)


@app.command(epilog=example("evalbus dataset update support a1 --expected 5"))
def update(  # noqa: PLR0913  # each is an option
    name: Name,
    item: Annotated[str | None, typer.Argument(metavar="[ITEM]", help="Which one.")] = None,
    file: ItemsFile = None,
    input: Input = None,
    input_json: InputJson = None,
    expected: Expected = None,
    expected_json: ExpectedJson = None,
    metadata: Metadata = None,
    tag: Tags = None,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Change parts of an item, or replace items.

    Items of a file take the places of those with their ids.
    """
    one_place(db, server)
    from evalbus_server.cli import datasets_change
    from evalbus_server.cli.datasets_place import Where

    parts = datasets_change.Parts(item, input, input_json, expected, expected_json, metadata, tag)
    datasets_change.update(Where(db, server), name, file, parts, as_json=as_json)


@app.command(epilog=example("evalbus dataset delete support a1 b7"))
def delete(  # noqa: PLR0913  # each is an option
    name: Name,
    items: Annotated[list[str] | None, typer.Argument(metavar="[ITEM]...", help="Which ones.")] = None,
    everything: Annotated[bool, typer.Option("--dataset", help="Delete the whole dataset with all versions.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --dataset: do it, nothing brings it back.")] = False,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Take items out, as one new version; earlier versions keep them."""
    one_place(db, server)
    if bool(items) == everything:
        raise typer.BadParameter("say which items, or --dataset for the whole dataset", param_hint="ITEM")
    if everything and not yes:
        raise typer.BadParameter("nothing brings the dataset back: say --yes", param_hint="--yes")
    from evalbus_server.cli import datasets_change
    from evalbus_server.cli.datasets_place import Where

    datasets_change.delete(Where(db, server), name, tuple(items or ()), as_json=as_json)


@app.command(epilog=example("evalbus dataset schema support --input schema.json"))
def schema(  # noqa: PLR0913  # each is an option
    name: Name,
    input: Annotated[
        Path | None, typer.Option("--input", metavar="F", help="A file with the JSON Schema of inputs.")
    ] = None,
    expected: Annotated[
        Path | None, typer.Option("--expected", metavar="F", help="A file with the JSON Schema of expected answers.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take both away.")] = False,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show the schemas of a dataset, or set them.

    All its items must fit.
    """
    one_place(db, server)
    from evalbus_server.cli import datasets_change
    from evalbus_server.cli.datasets_place import Where

    datasets_change.schema(Where(db, server), name, (input, expected), clear=clear, as_json=as_json)


@app.command(epilog=example("evalbus dataset scorers support exact_match includes"))
def scorers(  # noqa: PLR0913  # each is an option
    name: Name,
    names: Annotated[list[str] | None, typer.Argument(metavar="[SCORER]...", help="Who judges.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Name none.")] = False,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show or set who judges items that name no scorers.

    It counts in runs that leave it to the items. There is no new version.
    """
    one_place(db, server)
    if names and clear:
        raise typer.BadParameter("name scorers, or --clear, not both", param_hint="SCORER")
    from evalbus_server.cli import datasets_change
    from evalbus_server.cli.datasets_place import Where

    wanted = () if clear else tuple(names) if names else None
    datasets_change.scorers(Where(db, server), name, wanted, as_json=as_json)


@app.command(epilog=example("evalbus dataset versions support"))
def versions(
    name: Name,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")] = 20,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List versions, the newest first, and what each changed."""
    one_place(db, server)
    from evalbus_server.cli import datasets_versions
    from evalbus_server.cli.datasets_place import Where

    datasets_versions.versions(Where(db, server), name, limit, as_json=as_json)


@app.command(epilog=example("evalbus dataset diff support 2 3"))
def diff(  # noqa: PLR0913  # each is an option
    name: Name,
    a: Annotated[int, typer.Argument(metavar="A", min=0, help="The version to compare with.")],
    b: Annotated[int | None, typer.Argument(metavar="[B]", min=0, help="The other one [default: the newest].")] = None,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what differs between two versions."""
    one_place(db, server)
    from evalbus_server.cli import datasets_versions
    from evalbus_server.cli.datasets_place import Where

    datasets_versions.diff(Where(db, server), name, (a, b), as_json=as_json)


@app.command(epilog=example("evalbus dataset history support a1"))
def history(
    name: Name,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Which one.")],
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what an item was, the newest first."""
    one_place(db, server)
    from evalbus_server.cli import datasets_versions
    from evalbus_server.cli.datasets_place import Where

    datasets_versions.history(Where(db, server), name, item, as_json=as_json)


@app.command(epilog=example("evalbus dataset restore support 2"))
def restore(
    name: Name,
    version: Annotated[int, typer.Argument(metavar="N", min=0, help="Which version.")],
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Make an earlier version the newest again."""
    one_place(db, server)
    from evalbus_server.cli import datasets_versions
    from evalbus_server.cli.datasets_place import Where

    datasets_versions.restore(Where(db, server), name, version, as_json=as_json)


@app.command(epilog=example("evalbus dataset purge support a1 --yes"))
def purge(  # noqa: PLR0913  # each is an option
    name: Name,
    items: Annotated[list[str], typer.Argument(metavar="ITEM...", help="Which ones.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it: nothing brings the content back.")] = False,
    db: Db = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Take the content of items out of everything.

    Out of all versions and all results, on disk too.
    """
    one_place(db, server)
    if not yes:
        raise typer.BadParameter("nothing brings the content back: say --yes", param_hint="--yes")
    from evalbus_server.cli import datasets_versions
    from evalbus_server.cli.datasets_place import Where

    datasets_versions.purge(Where(db, server), name, tuple(items), as_json=as_json)
