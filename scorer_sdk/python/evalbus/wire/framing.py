"""The few pieces of the protobuf wire format that the hot path puts messages together from, and takes them apart by.

A trial's item goes to the target and to every scorer, its output to every scorer, and most answers are a text or a
number. Building a message for each costs three times as much as laying the encoded parts one after the other, which
is what a protobuf message is: fields in a row, submessages with their length before them. Tests hold the results
against the generated classes.
"""

from __future__ import annotations

from collections.abc import Iterator

_BITS = 14
_MASK = (1 << _BITS) - 1


def _slow_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_LAST = [_slow_varint(number) for number in range(1 << _BITS)]
_FIRST = [bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(1 << _BITS)]


def varint(number: int) -> bytes:
    """A number that is not negative, as protobuf writes it."""
    if number <= _MASK:
        return _LAST[number]
    if number < 1 << 2 * _BITS:
        return _FIRST[number & _MASK] + _LAST[number >> _BITS]
    return _slow_varint(number)


def tag(field: int, *, delimited: bool) -> bytes:
    """What stands before a field: its number, and whether a length or a number follows."""
    return varint(field << 3 | (2 if delimited else 0))


def submessage(tag_: bytes, encoded: bytes) -> bytes:
    """A submessage as a field."""
    return tag_ + varint(len(encoded)) + encoded


def fields(encoded: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of an encoded message, one after the other: number and value, which is bytes where it has a length.

    Raises:
        ValueError: it is no message.
    """
    place = 0
    while place < len(encoded):
        key, place = _varint_at(encoded, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint_at(encoded, place)
            yield key >> 3, value
            continue
        if kind == 2:
            length, place = _varint_at(encoded, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"there is no field of kind {kind}")
        if place + length > len(encoded):
            raise ValueError("a field ends behind its message")
        yield key >> 3, encoded[place : place + length]
        place += length


def _varint_at(encoded: bytes, place: int) -> tuple[int, int]:
    """The number that begins at *place*, and the place behind it."""
    number = 0
    for shift in range(0, 70, 7):
        if place >= len(encoded):
            raise ValueError("a number ends behind its message")
        byte = encoded[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise ValueError("a number of more than ten bytes")
