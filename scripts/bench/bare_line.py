"""The bare limit: the same hops and the same writes as the server, and nothing else. No retries, no credits, no
deadlines, no checks, no values. `bare_line.py DB COUNT TARGET EXACT LEVENSHTEIN` (addresses) prints the seconds that it
took.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from typing import Any

import grpc.aio

from evalbus.v1 import item_pb2, output_pb2, scorer_pb2, scorer_pb2_grpc, target_pb2, target_pb2_grpc, value_pb2

BATCH = 256
WINDOW = 4
"""Batches on their way to the target, and as many to the scorers."""
RUN = 1


class Line:
    """Pages → target → commit → scorers → commit."""

    def __init__(self, path: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=4000;"
        )
        self.n = RUN << 40
        self.sequence = 0
        self.passed = 0

    def pages(self) -> Any:
        """Items in pages, as the server reads them."""
        after = -1
        while rows := self.connection.execute(
            "SELECT position, id, input, expected FROM item WHERE dataset = 1 AND position > ? ORDER BY position LIMIT ?",
            (after, BATCH),
        ).fetchall():
            after = rows[-1][0]
            yield rows

    def store_outputs(self, batch: list[tuple[Any, str]]) -> None:
        """One transaction with the outputs of a batch."""
        self.connection.execute("BEGIN IMMEDIATE")
        rows = [(self.n + place, RUN, row[0], 1001, 1, 0.001, said) for place, (row, said) in enumerate(batch, 1)]
        self.n += len(batch)
        self.connection.executemany(
            "INSERT INTO output (id, run, trial, attempt, attempts, latency, content) VALUES (?,?,?,?,?,?,?)", rows
        )
        self.connection.execute("COMMIT")

    def store_scores(self, batch: list[tuple[Any, str]], exact: list[float], alike: list[float]) -> None:
        """One transaction with the scores, results and the event of a batch."""
        scores = []
        results = []
        ended = []
        for (row, _), one, two in zip(batch, exact, alike, strict=True):
            scores.append((RUN, row[0], 0, 1, one, None, "", "", ""))
            scores.append((RUN, row[0], 1, 1, two, None, "", "", ""))
            results.append((RUN, row[0], 1, 1, (one + two) / 2, 1))
            ended.append(row[0])
        self.sequence += 1
        self.passed += len(batch)
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        self.connection.executemany(
            "INSERT INTO score (run, trial, key, status, value, passed, name, label, explanation)"
            " VALUES (?,?,?,?,?,?,?,?,?)",
            scores,
        )
        self.connection.executemany(
            "INSERT INTO result (run, position, epoch, outcome, weighted, attempts) VALUES (?,?,?,?,?,?)", results
        )
        execute(
            "INSERT INTO event (run, sequence, time, kind, body) VALUES (?,?,?,?,?)",
            (RUN, self.sequence, time.time(), "trials", json.dumps(ended)),
        )
        execute("UPDATE progress SET passed = ?, last_sequence = ? WHERE run = ?", (self.passed, self.sequence, RUN))
        execute("COMMIT")


def item_of(row: tuple[Any, ...]) -> item_pb2.Item:
    """A row as a message."""
    return item_pb2.Item(id=row[1], input=value_pb2.Value(text=row[2]), expected=value_pb2.Value(text=row[3]))


class Belt:
    """Three steps joined by two queues of batches."""

    def __init__(self, line: Line, addresses: list[str]) -> None:
        self.line = line
        self.channels = [grpc.aio.insecure_channel(address) for address in addresses]
        self.asked: asyncio.Queue[list[tuple[Any, ...]] | None] = asyncio.Queue(WINDOW)
        self.scored: asyncio.Queue[list[tuple[Any, str]] | None] = asyncio.Queue(WINDOW)
        self.target: Any = target_pb2_grpc.TargetStub(self.channels[0]).Answer()
        self.scorers: list[Any] = [scorer_pb2_grpc.ScorerStub(channel).Score() for channel in self.channels[1:]]

    async def carry(self) -> None:
        """Everything through the line; lists move."""
        async with asyncio.TaskGroup() as belt:
            for step in (self.send, self.take, self.finish):
                belt.create_task(step())
        for channel in self.channels:
            await channel.close()

    async def send(self) -> None:
        """Pages to the target."""
        for rows in self.line.pages():
            trials = [
                item_pb2.Trial(trial_id=row[0], attempt=1001, item=item_of(row), epoch=1, index=row[0]) for row in rows
            ]
            await self.asked.put(rows)
            await self.target.write(target_pb2.AnswerRequest(trials=target_pb2.TrialBatch(trials=trials)))
        await self.asked.put(None)
        await self.target.done_writing()

    async def take(self) -> None:
        """Outputs to the database, then to the scorers."""
        while (rows := await self.asked.get()) is not None:
            response = await self.target.read()
            batch = [(row, said.output.content.text) for row, said in zip(rows, response.answers.answers, strict=True)]
            self.line.store_outputs(batch)
            await self.scored.put(batch)
            tasks = scorer_pb2.ScoreTaskBatch(tasks=[task_of(*one) for one in batch])
            for scorer in self.scorers:
                await scorer.write(scorer_pb2.ScoreRequest(tasks=tasks))
        await self.scored.put(None)
        for scorer in self.scorers:
            await scorer.done_writing()

    async def finish(self) -> None:
        """Scores to the database."""
        while (batch := await self.scored.get()) is not None:
            values = []
            for scorer in self.scorers:
                response = await scorer.read()
                values.append([answer.scores[0].value for answer in response.answers.answers])
            self.line.store_scores(batch, *values)


def task_of(row: tuple[Any, ...], said: str) -> scorer_pb2.ScoreTask:
    """A score task."""
    output = output_pb2.Output(content=value_pb2.Value(text=said))
    return scorer_pb2.ScoreTask(trial_id=row[0], attempt=1001, item=item_of(row), output=output, epoch=1)


async def run(line: Line, addresses: list[str]) -> None:
    """Make the belt where its loop is, and let it run."""
    await Belt(line, addresses).carry()


def main() -> None:
    """Time it, without the start of the process."""
    line = Line(sys.argv[1])
    began = time.perf_counter()
    asyncio.run(run(line, sys.argv[3:6]))
    seconds = time.perf_counter() - began
    done = line.connection.execute("SELECT count(*) FROM result").fetchone()[0]
    if done != int(sys.argv[2]):
        raise SystemExit(f"{done} results of {sys.argv[2]}")
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
