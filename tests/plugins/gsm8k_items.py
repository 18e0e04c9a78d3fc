"""Prints the questions of a gsm8k file as JSON lines: the question, and as expected the number behind its `####`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path


def rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """Id, question and expected number of every line."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            row = json.loads(line)
            expected = row["answer"].rpartition("####")[2].strip().replace(",", "")
            yield f"q{number:04}", row["question"], expected


if __name__ == "__main__":
    for id, question, expected in rows(Path(sys.argv[1])):
        print(json.dumps({"id": id, "input": question, "expected": expected}))
