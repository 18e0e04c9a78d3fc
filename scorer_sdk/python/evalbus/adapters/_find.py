"""From the name of a scorer to the scorer: which library, which object in it, and what to say if it is not there."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from evalbus._adapted import LIBRARIES, PYTHON
from evalbus._definition import Scorer
from evalbus._results import one_line
from evalbus.adapters._adapter import AdapterError


def find(use: str) -> Scorer[Any, Any]:
    """The scorer behind a name, as a plugin.

    Raises:
        AdapterError: there is none, or its library is not installed; one line that says what to do.
    """
    if use.startswith(PYTHON):
        from evalbus.adapters import _python

        return _python.adapt(use.removeprefix(PYTHON))
    library, _, name = use.partition(".")
    if library not in LIBRARIES or not name:
        known = ", ".join(f"{each}.NAME" for each in LIBRARIES)
        raise AdapterError(f"{use!r} is no scorer of another library: write {known} or python:MODULE.FUNCTION")
    adapter = importlib.import_module(f"evalbus.adapters._{library}")
    adapt: Callable[[str], Scorer[Any, Any]] = adapter.adapt
    return adapt(name)


def library(name: str, distribution: str | None = None) -> ModuleType:
    """A module of another library; *distribution* is what pip calls the library, if not like its module.

    Raises:
        AdapterError: it is not installed here, or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        root = name.partition(".")[0]
        if error.name == root:
            wanted = distribution or root
            text = f"{wanted} is not installed for {sys.executable}: {sys.executable} -m pip install {wanted}"
            raise AdapterError(text) from None
        raise AdapterError(f"{name} cannot be imported by {sys.executable}: {error}") from None
    except Exception as error:  # another library's code
        raise AdapterError(one_line(f"{name} cannot be imported: {type(error).__name__}: {error}")) from error


def named(library: str, name: str, places: Sequence[ModuleType], fits: Callable[[Any], bool], kind: str) -> Any:
    """The object of a library that is called *name*, or of a module of one's own, as `MODULE:NAME`.

    Raises:
        AdapterError: there is none, or it is no scorer.
    """
    if ":" in name:
        found = imported(name)
        if not fits(found):
            raise AdapterError(f"{name} is no {kind} of {library}")
        return found
    for place in places:
        found = getattr(place, name, None)
        if found is not None and fits(found):
            return found
    known = sorted({key for place in places for key in _public(place) if fits(getattr(place, key, None))})
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; there is {', '.join(known)}"
    raise AdapterError(f"{library} has no {kind} {name!r}{hint}")


def _public(place: ModuleType) -> Sequence[str]:
    return getattr(place, "__all__", None) or [name for name in dir(place) if not name.startswith("_")]


def imported(name: str) -> Any:
    """The object `MODULE:NAME` or `MODULE.NAME`, looked for in the working folder first.

    Raises:
        AdapterError: there is none, or its module cannot be imported.
    """
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    module_name, colon, path = name.partition(":")
    if not colon:
        module_name, _, path = name.rpartition(".")
    if not module_name or not path:
        raise AdapterError(f"{name!r} names no function: write MODULE.FUNCTION, as in checks.polite for checks.py")
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            where = f"in {os.getcwd()} and not installed for {sys.executable}"
            raise AdapterError(f"there is no module {error.name!r} {where}") from None
        raise AdapterError(f"module {module_name!r} cannot be imported: {error}") from None
    except Exception as error:  # its author's code
        text = f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        raise AdapterError(one_line(text)) from error
    for step in path.split("."):
        if not hasattr(found, step):
            near = difflib.get_close_matches(step, [key for key in dir(found) if not key.startswith("_")], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise AdapterError(f"module {module_name!r} has no {path!r}{hint}")
        found = getattr(found, step)
    return found
