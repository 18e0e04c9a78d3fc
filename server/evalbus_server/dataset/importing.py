"""A dataset on its way from its source into the store: all or nothing, or the good rows with a list of the bad ones.

Ids that come twice are found where the items are kept, so that no file is too large; the lines are known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from evalbus import Item
from evalbus_server.dataset.lines import LineIndex
from evalbus_server.dataset.parts import remade
from evalbus_server.dataset.read import Batch, repeated_id
from evalbus_server.dataset.refusal import SHOWN, DatasetInvalid, Refusal
from evalbus_server.model.dataset import Fault, Repeated

REMEMBERED = 100_000
"""Ids that reading remembers by itself, which makes its messages better and most imports quicker."""


class Sink(Protocol):
    """Where items go."""

    def add_new(self, items: list[Item], *, strict: bool = False) -> list[Repeated]:
        """Take the next items but for those whose id came before; *strict*: none if there are such."""
        ...


Check = Callable[[Sequence[Item]], Sequence[Fault]]
"""What is wrong with items, by their places."""


def bring_in(
    batches: Iterable[Batch],
    sink: Sink,
    *,
    name: str,
    refused: Callable[[Refusal], None] | None = None,
    check: Check | None = None,
) -> Iterator[int]:
    """Give items to the sink, a batch at each step; each step says how many have gone in so far.

    *refused* is told of each row that is left out; without it one such row refuses all.

    Raises:
        DatasetInvalid: rows are refused; what is in the sink does not count.
    """
    importer = _Importer(sink, name, refused, check)
    for batch in batches:
        importer.take(batch)
        yield importer.count


class _Importer:
    def __init__(self, sink: Sink, name: str, refused: Callable[[Refusal], None] | None, check: Check | None) -> None:
        self.sink = sink
        self.name = name
        self.refused = refused
        self.check = check
        self.lines = LineIndex()
        self.count = 0
        self.copies: dict[str, int] = {}
        """How often contents came that brought no id, of those that came twice."""

    def take(self, batch: Batch) -> None:
        faults = self.check(batch) if self.check is not None else ()
        if faults:
            self.refuse(
                [
                    Refusal(batch.lines[each.place], each.reason.lower(), f"{each.path}: {each.message}")
                    for each in faults
                ]
            )
            batch = batch.without({each.place for each in faults})
        while batch:
            repeated = self.sink.add_new(batch, strict=True)
            if not repeated:
                break
            batch = self.without_repeated(batch, repeated)
        for line in batch.lines:
            self.lines.note(line)
        self.count += len(batch)

    def without_repeated(self, batch: Batch, repeated: Sequence[Repeated]) -> Batch:
        """The batch without what has an id that came before; ids that are made are counted instead."""
        out: set[int] = set()
        refusals: list[Refusal] = []
        for place, id, earlier in repeated:
            if place in batch.made:
                short = id.partition("-")[0]
                copy = self.copies[short] = self.copies.get(short, 1) + 1
                batch[place] = remade(batch[place], id=f"{short}-{copy}")
                continue
            out.add(place)
            line = self.lines.line(earlier) if earlier < self.count else batch.lines[earlier - self.count]
            error = repeated_id(id, f"line {line}")
            refusals.append(Refusal(batch.lines[place], error.kind, str(error)))
        self.refuse(refusals)
        return batch.without(out) if out else batch

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        if not refusals:
            return
        if self.refused is None:
            raise DatasetInvalid(self.name, refusals[:SHOWN], more=True)
        for each in refusals:
            self.refused(each)
