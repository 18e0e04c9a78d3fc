"""The file's schema: what the steps make of it, and what schema.sql says."""

from __future__ import annotations

import re
import sqlite3
from importlib import resources
from pathlib import Path

from evalbus_server.store import Store, migrations, open_store
from evalbus_server.store.connection import APPLICATION, VERSION


def schema_of(raw: sqlite3.Connection) -> dict[str, str]:
    """The statements that made what is in a database, by name, without comments and layout."""
    found = raw.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE '%sqlite_%'")
    return {name: re.sub(r"\s+", "", re.sub(r"--.*", "", sql)) for name, sql in found}


def test_schema_sql_shows_what_the_steps_make() -> None:
    shown, made = sqlite3.connect(":memory:"), sqlite3.connect(":memory:", isolation_level=None)
    shown.executescript(resources.files("evalbus_server.store").joinpath("schema.sql").read_text())
    migrations.migrate(made)

    assert schema_of(made) == schema_of(shown)

    shown.close()
    made.close()


def test_every_table_is_strict() -> None:
    raw = sqlite3.connect(":memory:", isolation_level=None)
    migrations.migrate(raw)

    lax = raw.execute("SELECT name FROM pragma_table_list WHERE NOT strict AND name NOT LIKE '%sqlite_%'").fetchall()

    raw.close()
    assert lax == []


def test_the_header_says_whose_file_it_is_and_how_far_it_is(store: Store) -> None:
    with sqlite3.connect(store.path) as raw:
        header = [raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    raw.close()

    assert header == [APPLICATION, VERSION]


def test_a_file_that_is_up_to_date_is_not_changed_by_opening_it(path: Path) -> None:
    open_store(path).close()
    with sqlite3.connect(path) as raw:
        before = raw.execute("SELECT * FROM _sqlite_migrations").fetchall()
    raw.close()

    open_store(path).close()

    with sqlite3.connect(path) as raw:
        after = raw.execute("SELECT * FROM _sqlite_migrations").fetchall()
    raw.close()
    assert after == before
    assert len(after) == VERSION
