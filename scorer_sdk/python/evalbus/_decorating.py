"""How a decorator is to be written: what Python would say of a wrong call, said with the right form beside it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar

from evalbus._errors import PluginInvalid

P = ParamSpec("P")
R = TypeVar("R")


def decorator(decorates: Callable[P, R]) -> Callable[P, R]:
    """A function that makes a decorator of a name and of options, each of these by its keyword.

    The call of it raises PluginInvalid where it was not called so.
    """
    signature = inspect.signature(decorates)
    options = [each.name for each in signature.parameters.values() if each.kind is each.KEYWORD_ONLY]
    called = f"@{decorates.__name__}"

    @functools.wraps(decorates)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        given: Sequence[Any] = args
        unknown = [name for name in kwargs if name not in signature.parameters]
        first = given[0] if given else kwargs.get("name", "")
        if callable(first):
            function = getattr(first, "__name__", "it")
            raise PluginInvalid(f'{called} needs a name: write {called}("{function}") above {function}')
        if not given and "name" not in kwargs:
            raise PluginInvalid(f'{called} needs a name: write {called}("my-name")')
        if not isinstance(first, str):
            raise PluginInvalid(f'{called}: its name is a text, as in {called}("my-name"), not {first!r}')
        if len(given) > 1:
            form = f'{called}("{first}", {options[0]}=…)'
            raise PluginInvalid(
                f"{called}: only the name stands without a keyword: write {form}, not {given[1]!r} alone"
            )
        if unknown:
            near = get_close_matches(unknown[0], options, n=1)
            hint = f"did you mean {near[0]}=?" if near else f"known are {', '.join(options)}"
            raise PluginInvalid(f'{called}("{first}"): there is no option {unknown[0]}=; {hint}')
        return decorates(*args, **kwargs)

    return checked


def list_of(kind: type, given: Any, owner: str, example: str) -> None:
    """Check that an option is a list of this kind; *example* is how it is written, from its name on.

    Raises:
        PluginInvalid: it is something else.
    """
    several = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    wrong = next((each for each in given if not isinstance(each, kind)), None) if several else given
    if not several or wrong is not None:
        option = example.partition("=")[0]
        raise PluginInvalid(f"{owner}: {option} is a list, as in {example}, not {_shown(given)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
