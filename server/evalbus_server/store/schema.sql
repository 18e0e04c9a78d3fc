-- The whole schema as it is now: for reading. Files are made and brought up to date by migrations.py, and a test says
-- that both agree.
--
-- Content (a Value) takes two columns: the text or the bytes, and what it is. The type is NULL for plain text, 'json' for
-- another JSON document, and the media type if the content is a BLOB. Content NULL: there is none.
--
-- `detail` holds the rarer parts of a value as one JSON document (documents.py), NULL when they are all empty.
-- Consumption is six columns, all NULL if nothing is known; a cost of NULL is an unknown price.
-- Enums are the numbers of the contract. A trial is (epoch - 1) << 32 | position.

-- Whether the last writer closed the file in order: the era grows with every one that did not.
CREATE TABLE recovery (
  era INTEGER NOT NULL,
  clean INTEGER NOT NULL
) STRICT;

CREATE TABLE dataset (
  n INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  version INTEGER NOT NULL, -- the latest that is published; without a row in dataset_version: none yet
  staging INTEGER NOT NULL, -- 1 while an upload writes the rows of version + 1
  description TEXT NOT NULL DEFAULT '',
  metadata TEXT,            -- a JSON object
  input_schema TEXT,        -- JSON Schema that each input must fit
  expected_schema TEXT,
  scorers TEXT,             -- JSON: who judges items that name none of their own
  origin TEXT               -- the file that gave it its name; NULL: somebody named it
) STRICT;

CREATE TABLE dataset_version (
  dataset INTEGER NOT NULL REFERENCES dataset,
  version INTEGER NOT NULL,
  items INTEGER NOT NULL,
  digest TEXT NOT NULL,
  created_at REAL NOT NULL,
  sum BLOB NOT NULL,        -- what the digest is of (digest.py)
  cause TEXT NOT NULL,      -- 'upload', 'add', 'update', 'delete', 'restore 3'; 'create' for version 0
  added INTEGER NOT NULL,
  changed INTEGER NOT NULL,
  removed INTEGER NOT NULL,
  PRIMARY KEY (dataset, version)
) STRICT, WITHOUT ROWID;

-- An item at one position through as many versions as it stays unchanged there.
CREATE TABLE item (
  n INTEGER PRIMARY KEY,
  dataset INTEGER NOT NULL REFERENCES dataset,
  position INTEGER NOT NULL,
  first_version INTEGER NOT NULL,
  last_version INTEGER,     -- NULL: still there
  id TEXT NOT NULL,
  input ANY NOT NULL,
  input_type TEXT,
  expected ANY,
  expected_type TEXT,
  metadata TEXT,
  detail TEXT
) STRICT;
CREATE UNIQUE INDEX item_order ON item (dataset, position, first_version);
CREATE INDEX item_id ON item (dataset, id);

-- Rows of items whose content was purged: what comes in later about them is not kept.
CREATE TABLE purged (
  dataset INTEGER NOT NULL REFERENCES dataset,
  item INTEGER NOT NULL,    -- its n; without a reference, which every deletion of an item would have to look up
  purged_at REAL NOT NULL,
  done INTEGER NOT NULL,    -- 0: some of the content may still be somewhere
  PRIMARY KEY (dataset, item)
) STRICT, WITHOUT ROWID;

-- What never changes about a run.
CREATE TABLE run (
  n INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  request_id TEXT UNIQUE,
  name TEXT NOT NULL,
  created_at REAL NOT NULL,
  dataset INTEGER NOT NULL,
  dataset_version INTEGER NOT NULL,
  listed INTEGER NOT NULL,  -- 1: the items and their order are in 'chosen'; 0: the first ones of the version
  items INTEGER NOT NULL,
  last INTEGER NOT NULL,    -- the position of the last item, or its place in the list
  epochs INTEGER NOT NULL,
  tags TEXT NOT NULL,       -- JSON
  score_keys TEXT NOT NULL, -- JSON
  plugins TEXT NOT NULL,    -- JSON
  digest TEXT NOT NULL,
  experiment TEXT NOT NULL, -- JSON
  source INTEGER REFERENCES run,  -- whose outputs are scored here anew; NULL: it has its own
  assignment TEXT,          -- JSON: how scorers are told from items; NULL: all of them judge every trial
  outputs INTEGER,          -- in which run these are stored: the source, or where those of the source are; NULL: here
  FOREIGN KEY (dataset, dataset_version) REFERENCES dataset_version (dataset, version)
) STRICT;
CREATE INDEX run_name ON run (name);
CREATE INDEX run_dataset ON run (dataset, dataset_version);
CREATE INDEX run_source ON run (source) WHERE source IS NOT NULL;

-- The items of a run that asks not just the first ones, in the order in which they are asked.
CREATE TABLE chosen (
  run INTEGER NOT NULL REFERENCES run,
  part INTEGER NOT NULL,    -- of the list: 4,096 places each
  positions BLOB NOT NULL,  -- numbers of 4 bytes, the lowest first
  PRIMARY KEY (run, part)
) STRICT, WITHOUT ROWID;

-- What changes about a run: apart from it, since every commit writes this row anew.
CREATE TABLE progress (
  run INTEGER PRIMARY KEY REFERENCES run,
  state INTEGER NOT NULL,
  reason TEXT NOT NULL,
  verdict INTEGER,
  started_at REAL,
  ended_at REAL,
  session INTEGER NOT NULL,
  session_began_at REAL,    -- NULL while nobody works on it
  worked REAL NOT NULL,     -- seconds, in the sessions that are over
  planned INTEGER NOT NULL,
  passed INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  errored INTEGER NOT NULL,
  skipped INTEGER NOT NULL,
  last_sequence INTEGER NOT NULL,
  protocol_faults INTEGER NOT NULL,
  era INTEGER NOT NULL,     -- of the last event
  limits TEXT               -- JSON: by path, what was set anew in the limits of the experiment
) STRICT;

-- The outputs of a run stand together, in the order of their commits: id is run << 40 | n, n counted from 1 in the run.
CREATE TABLE output (
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES run,
  trial INTEGER NOT NULL,
  attempt INTEGER NOT NULL, -- session * 1000 + n; 0: the dataset brought it; -1: it was remembered (cached)
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
) STRICT;
CREATE UNIQUE INDEX output_trial ON output (run, trial);

-- Which output a target gave, by the digest of all that it was asked with.
CREATE TABLE cached (
  key TEXT PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES run,
  trial INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX cached_output ON cached (run, trial);

CREATE TABLE score (
  run INTEGER NOT NULL REFERENCES run,
  trial INTEGER NOT NULL,
  key INTEGER NOT NULL,     -- position in the run's score keys
  status INTEGER NOT NULL,
  value REAL CHECK (value BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
  passed INTEGER,
  name TEXT NOT NULL,
  label TEXT NOT NULL,
  explanation TEXT NOT NULL,
  detail TEXT,
  PRIMARY KEY (run, trial, key),
  CHECK ((status = 1) = (value IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- Attempts that failed.
CREATE TABLE attempt (
  run INTEGER NOT NULL REFERENCES run,
  trial INTEGER NOT NULL,
  role INTEGER NOT NULL,    -- -1: the target, else the scorer's position in the run
  attempt INTEGER NOT NULL,
  sent_at REAL NOT NULL,
  duration REAL NOT NULL,
  category INTEGER NOT NULL,
  failure TEXT NOT NULL,    -- JSON
  input_tokens INTEGER,
  output_tokens INTEGER,
  cached_tokens INTEGER,
  calls INTEGER,
  cost_micros INTEGER,
  currency TEXT,
  PRIMARY KEY (run, trial, role, attempt)
) STRICT, WITHOUT ROWID;

-- The outcome of a trial, for good. Its key is the order in which results are read: dataset order, then epoch.
CREATE TABLE result (
  run INTEGER NOT NULL REFERENCES run,
  position INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  outcome INTEGER NOT NULL,
  weighted REAL CHECK (weighted BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
  attempts INTEGER NOT NULL,
  category INTEGER,
  failure TEXT,             -- JSON
  input_tokens INTEGER,
  output_tokens INTEGER,
  cached_tokens INTEGER,
  calls INTEGER,
  cost_micros INTEGER,
  currency TEXT,
  PRIMARY KEY (run, position, epoch)
) STRICT, WITHOUT ROWID;

-- What is asked again although it has an answer, which stands until the new one is stored.
CREATE TABLE retry (
  run INTEGER NOT NULL REFERENCES run,
  trial INTEGER NOT NULL,
  key INTEGER NOT NULL,     -- -1: the result, else a score, by its position in the run's score keys
  scorer INTEGER NOT NULL,  -- -1: none, else its position in the run
  PRIMARY KEY (run, trial, key)
) STRICT, WITHOUT ROWID;

-- Numbers over all trials of a score, made when the run was complete.
CREATE TABLE metric (
  run INTEGER NOT NULL REFERENCES run,
  key INTEGER NOT NULL,     -- position in the run's score keys
  place INTEGER NOT NULL,   -- in the experiment's list of them
  name TEXT NOT NULL,
  value REAL CHECK (value BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308),
  explanation TEXT NOT NULL,
  lower INTEGER NOT NULL,   -- 1: a lower value is better
  PRIMARY KEY (run, key, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
  run INTEGER NOT NULL REFERENCES run,
  sequence INTEGER NOT NULL,
  time REAL NOT NULL,
  kind TEXT NOT NULL,       -- 'state', 'trials', 'limits' or 'purge'
  body TEXT NOT NULL,       -- JSON
  PRIMARY KEY (run, sequence)
) STRICT, WITHOUT ROWID;

-- The numbers of a run that keeps no scores, once it is COMPLETED and its scores are gone.
CREATE TABLE kept_summary (
  run INTEGER PRIMARY KEY REFERENCES run,
  body BLOB NOT NULL        -- a Summary of the contract
) STRICT;
