"""A tiny process that overwrites the unused middle of pages in a database file, while its server holds the right to write.

It is started with `python -I -S wiper.py FILE`, reads lines `FIRST COUNT` (pages, from 0) and answers each with the
number of pages that it has wiped, or with `-` and why it cannot. It is a process of its own since whoever closes a file
loses all locks that his process has on it, also those of SQLite. It imports the standard library alone, since it has to
start fast. The format of the file: https://sqlite.org/fileformat.html.
"""

import os
import sys

LEAVES, INNER = (10, 13), (2, 5)
MOST_PAGES = 0x02000000
"""In a longer file the first byte of a page that continues a long value may look like that of a page with rows."""


def main(path: str) -> None:
    """Answer until nobody asks any more."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    for line in sys.stdin:
        first, count = map(int, line.split())
        try:
            print(wipe(file, first, count), flush=True)
        except OSError as error:
            print(f"- {error.strerror}", flush=True)


def wipe(file: int, first: int, count: int) -> int:
    """Wipe the unused middle of some pages; returns in how many there was something."""
    header = os.pread(file, 100, 0)
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    if not is_known(header, size) or os.fstat(file).st_size // size >= MOST_PAGES:
        return 0
    pages = os.pread(file, size * count, size * first)
    wiped = 0
    for place in range(0, len(pages) - size + 1, size):
        begin, end = unused(pages, place, place + (100 if first == place == 0 else 0), size)
        if begin < end and pages.count(0, begin, end) < end - begin:
            os.pwrite(file, bytes(end - begin), size * first + begin)
            wiped += 1
    if wiped:
        os.fsync(file)
    return wiped


def is_known(header: bytes, size: int) -> bool:
    """Whether pages have their usual form: no part of them is reserved, and none says where others are."""
    usual = header.startswith(b"SQLite format 3\0") and 512 <= size <= 65536
    return usual and header[20] == 0 and header[52:56] == bytes(4)


def unused(pages: bytes, place: int, at: int, size: int) -> tuple[int, int]:
    """From where to where the page at a *place* is unused, between the pointers to its rows and the rows; *at* it begins."""
    kind = pages[at]
    if kind not in LEAVES and kind not in INNER:
        return 0, 0
    rows = int.from_bytes(pages[at + 3 : at + 5], "big")
    begin = at + (8 if kind in LEAVES else 12) + 2 * rows
    end = place + (int.from_bytes(pages[at + 5 : at + 7], "big") or 65536)
    return (begin, end) if begin <= end <= place + size else (0, 0)


if __name__ == "__main__":
    main(sys.argv[1])
