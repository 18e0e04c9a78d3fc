"""Everything that lasts, in one SQLite file: datasets, runs, what happened to each trial, events.

`open_store` is for the one process that writes, `open_reader` for all others. No other package knows SQLite.
"""

from evalbus_server.store.cache import MOST as MOST_CACHED
from evalbus_server.store.cache import Remembered
from evalbus_server.store.commit import Committed
from evalbus_server.store.log import RunLog
from evalbus_server.store.purge import ITEM_PURGED
from evalbus_server.store.reader import Reader
from evalbus_server.store.runs import RunFilter
from evalbus_server.store.scrub import Extent
from evalbus_server.store.staging import Restoration, Staging, Upload
from evalbus_server.store.store import Store, open_reader, open_store

__all__ = [
    "ITEM_PURGED",
    "MOST_CACHED",
    "Committed",
    "Extent",
    "Reader",
    "Remembered",
    "Restoration",
    "RunFilter",
    "RunLog",
    "Staging",
    "Store",
    "Upload",
    "open_reader",
    "open_store",
]
