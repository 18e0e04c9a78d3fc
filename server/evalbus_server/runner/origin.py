"""Where the items of an experiment come from: two files of one stem are hardly two versions of one dataset.

A file that was edited is one, and so is a file that was moved. Whether it was moved can be seen only where the files lie,
so it is looked at here, by whoever reads them; that nothing else came in meanwhile is seen by who stores them.
"""

from __future__ import annotations

import os
import re

from evalbus_server.errors import Conflict, Reason
from evalbus_server.model.dataset import Origin
from evalbus_server.model.dataset_use import in_folder
from evalbus_server.model.experiment import Experiment

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def named_by_file(experiment: Experiment) -> bool:
    """Whether a file gives the dataset its name, and nobody else does."""
    return experiment.dataset.name is None and experiment.dataset.path is not None


def origin_of(experiment: Experiment, name: str, known: str) -> Origin | None:
    """The file that gives a dataset its name; None if none does. *known* is the one that it has come from until now.

    Raises:
        Conflict: DATASET_EXISTS: that is another file, and still there.
    """
    if not named_by_file(experiment):
        return None
    file = _text(os.path.realpath(in_folder(experiment.dataset.path or "", experiment.dataset.folder)))
    if not known or known == file:
        return Origin(file)
    if os.path.exists(known):
        message = (
            f"dataset.path: the dataset {name!r} comes from {known}, and {file} is another file: beside path, give it a "
            f"name of its own, or say name: {name} if it is to be a new version of the same"
        )
        raise Conflict(Reason.DATASET_EXISTS, message, field="dataset.path")
    return Origin(file, moved_from=known)


def _text(path: str) -> str:
    """A path as text that can be stored, sent and shown."""
    readable = os.fsencode(path).decode("utf-8", "backslashreplace")
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", readable)
