"""The few pieces of the protobuf wire format that requests on the hot path are put together from.

A trial's item goes to the target and to every scorer, its output to every scorer. Building a message for each costs
three times as much as encoding the parts once and laying the encoded parts into each request, which is what a
protobuf message is: fields one after the other, submessages with their length before them. A test holds the
result against the generated classes.
"""

from __future__ import annotations

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
