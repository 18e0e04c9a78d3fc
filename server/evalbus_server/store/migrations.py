"""How the schema came to be, step by step; schema.sql shows where it stands. Applied by sqlite-utils.

A step that has been released is never changed: a new one is added behind it.
"""

from __future__ import annotations

import sqlite3

from sqlite_utils import Database, Migrations

steps = Migrations("evalbus")


def migrate(raw: sqlite3.Connection) -> None:
    """Bring a file up to date: each step in one transaction together with the note that it was done."""
    database = Database(raw, execute_plugins=False)
    steps.apply(database)


@steps()
def first(database: Database) -> None:
    """Datasets with versions, runs, and what is stored of their trials."""
    for statement in _FIRST:
        database.execute(statement)
    _number(database, 1)


def _number(database: Database, version: int) -> None:
    """Note the step in the file's header too, where it can be read without sqlite-utils, which takes long to load."""
    database.execute(f"PRAGMA user_version = {version}")


_FIRST = (
    """
    CREATE TABLE recovery (
      era INTEGER NOT NULL,
      clean INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE dataset (
      n INTEGER PRIMARY KEY,
      name TEXT NOT NULL UNIQUE,
      version INTEGER NOT NULL,
      staging INTEGER NOT NULL,
      description TEXT NOT NULL DEFAULT '',
      metadata TEXT,
      input_schema TEXT,
      expected_schema TEXT,
      scorers TEXT,
      origin TEXT
    ) STRICT
    """,
    """
    CREATE TABLE dataset_version (
      dataset INTEGER NOT NULL REFERENCES dataset,
      version INTEGER NOT NULL,
      items INTEGER NOT NULL,
      digest TEXT NOT NULL,
      created_at REAL NOT NULL,
      sum BLOB NOT NULL,
      cause TEXT NOT NULL,
      added INTEGER NOT NULL,
      changed INTEGER NOT NULL,
      removed INTEGER NOT NULL,
      PRIMARY KEY (dataset, version)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE item (
      n INTEGER PRIMARY KEY,
      dataset INTEGER NOT NULL REFERENCES dataset,
      position INTEGER NOT NULL,
      first_version INTEGER NOT NULL,
      last_version INTEGER,
      id TEXT NOT NULL,
      input ANY NOT NULL,
      input_type TEXT,
      expected ANY,
      expected_type TEXT,
      metadata TEXT,
      detail TEXT
    ) STRICT
    """,
    "CREATE UNIQUE INDEX item_order ON item (dataset, position, first_version)",
    "CREATE INDEX item_id ON item (dataset, id)",
    """
    CREATE TABLE purged (
      dataset INTEGER NOT NULL REFERENCES dataset,
      item INTEGER NOT NULL,
      purged_at REAL NOT NULL,
      done INTEGER NOT NULL,
      PRIMARY KEY (dataset, item)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE run (
      n INTEGER PRIMARY KEY,
      id TEXT NOT NULL UNIQUE,
      request_id TEXT UNIQUE,
      name TEXT NOT NULL,
      created_at REAL NOT NULL,
      dataset INTEGER NOT NULL,
      dataset_version INTEGER NOT NULL,
      listed INTEGER NOT NULL,
      items INTEGER NOT NULL,
      last INTEGER NOT NULL,
      epochs INTEGER NOT NULL,
      tags TEXT NOT NULL,
      score_keys TEXT NOT NULL,
      plugins TEXT NOT NULL,
      digest TEXT NOT NULL,
      experiment TEXT NOT NULL,
      source INTEGER REFERENCES run,
      assignment TEXT,
      outputs INTEGER,
      FOREIGN KEY (dataset, dataset_version) REFERENCES dataset_version (dataset, version)
    ) STRICT
    """,
    "CREATE INDEX run_name ON run (name)",
    "CREATE INDEX run_dataset ON run (dataset, dataset_version)",
    "CREATE INDEX run_source ON run (source) WHERE source IS NOT NULL",
    """
    CREATE TABLE chosen (
      run INTEGER NOT NULL REFERENCES run,
      part INTEGER NOT NULL,
      positions BLOB NOT NULL,
      PRIMARY KEY (run, part)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE progress (
      run INTEGER PRIMARY KEY REFERENCES run,
      state INTEGER NOT NULL,
      reason TEXT NOT NULL,
      verdict INTEGER,
      started_at REAL,
      ended_at REAL,
      session INTEGER NOT NULL,
      session_began_at REAL,
      worked REAL NOT NULL,
      planned INTEGER NOT NULL,
      passed INTEGER NOT NULL,
      failed INTEGER NOT NULL,
      errored INTEGER NOT NULL,
      skipped INTEGER NOT NULL,
      last_sequence INTEGER NOT NULL,
      protocol_faults INTEGER NOT NULL,
      era INTEGER NOT NULL,
      limits TEXT
    ) STRICT
    """,
    """
    CREATE TABLE output (
      id INTEGER PRIMARY KEY,
      run INTEGER NOT NULL REFERENCES run,
      trial INTEGER NOT NULL,
      attempt INTEGER NOT NULL,
      attempts INTEGER NOT NULL,
      latency REAL CHECK (latency BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
      input_tokens INTEGER,
      output_tokens INTEGER,
      cached_tokens INTEGER,
      calls INTEGER,
      cost_micros INTEGER,
      currency TEXT,
      content ANY,
      content_type TEXT,
      answer ANY,
      answer_type TEXT,
      metadata TEXT,
      detail TEXT
    ) STRICT
    """,
    "CREATE UNIQUE INDEX output_trial ON output (run, trial)",
    """
    CREATE TABLE cached (
      key TEXT PRIMARY KEY,
      run INTEGER NOT NULL REFERENCES run,
      trial INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX cached_output ON cached (run, trial)",
    """
    CREATE TABLE score (
      run INTEGER NOT NULL REFERENCES run,
      trial INTEGER NOT NULL,
      key INTEGER NOT NULL,
      status INTEGER NOT NULL,
      value REAL CHECK (value BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
      passed INTEGER,
      name TEXT NOT NULL,
      label TEXT NOT NULL,
      explanation TEXT NOT NULL,
      detail TEXT,
      PRIMARY KEY (run, trial, key),
      CHECK ((status = 1) = (value IS NOT NULL))
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE attempt (
      run INTEGER NOT NULL REFERENCES run,
      trial INTEGER NOT NULL,
      role INTEGER NOT NULL,
      attempt INTEGER NOT NULL,
      sent_at REAL NOT NULL,
      duration REAL NOT NULL,
      category INTEGER NOT NULL,
      failure TEXT NOT NULL,
      input_tokens INTEGER,
      output_tokens INTEGER,
      cached_tokens INTEGER,
      calls INTEGER,
      cost_micros INTEGER,
      currency TEXT,
      PRIMARY KEY (run, trial, role, attempt)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE result (
      run INTEGER NOT NULL REFERENCES run,
      position INTEGER NOT NULL,
      epoch INTEGER NOT NULL,
      outcome INTEGER NOT NULL,
      weighted REAL CHECK (weighted BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
      attempts INTEGER NOT NULL,
      category INTEGER,
      failure TEXT,
      input_tokens INTEGER,
      output_tokens INTEGER,
      cached_tokens INTEGER,
      calls INTEGER,
      cost_micros INTEGER,
      currency TEXT,
      PRIMARY KEY (run, position, epoch)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE retry (
      run INTEGER NOT NULL REFERENCES run,
      trial INTEGER NOT NULL,
      key INTEGER NOT NULL,
      scorer INTEGER NOT NULL,
      PRIMARY KEY (run, trial, key)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE metric (
      run INTEGER NOT NULL REFERENCES run,
      key INTEGER NOT NULL,
      place INTEGER NOT NULL,
      name TEXT NOT NULL,
      value REAL CHECK (value BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
      explanation TEXT NOT NULL,
      lower INTEGER NOT NULL,
      PRIMARY KEY (run, key, place)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE event (
      run INTEGER NOT NULL REFERENCES run,
      sequence INTEGER NOT NULL,
      time REAL NOT NULL,
      kind TEXT NOT NULL,
      body TEXT NOT NULL,
      PRIMARY KEY (run, sequence)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE kept_summary (
      run INTEGER PRIMARY KEY REFERENCES run,
      body BLOB NOT NULL
    ) STRICT
    """,
    "INSERT INTO recovery (era, clean) VALUES (0, 1)",
)
