"""Content of any kind: a text, a JSON document, bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from evalbus import _json
from evalbus._draft import draft

Json: TypeAlias = Any
"""A JSON document as Python objects: None, bool, int, float, str, list, dict."""

Kind = Literal["text", "json", "blob"]


@dataclass(frozen=True, slots=True)
class Value:
    """Content: plain text, one JSON document that is not a string, or bytes with a media type.

    An absent value is None where a Value could stand; JSON null is `Value.json("null")`; "" is `Value("")`.
    The three stay apart everywhere.
    """

    body: str | bytes
    """The text, the JSON document as it was written, or the bytes."""
    kind: Kind = "text"
    media_type: str = ""
    """Only with bytes: what they are, such as `image/png`."""

    @classmethod
    def json(cls, document: str) -> Value:
        """A JSON document from its text, kept as it was written; a document that is a string becomes a text.

        Raises:
            ValueError: it is not JSON; see `proto/evalbus/v1/value.proto` for what is.
        """
        parsed = _json.loads(document)
        return cls(parsed) if isinstance(parsed, str) else cls(document.strip(), "json")

    @classmethod
    def blob(cls, data: bytes, media_type: str) -> Value:
        """Bytes and their media type.

        Raises:
            ValueError: the media type is empty.
        """
        if not media_type:
            raise ValueError("bytes need a media type, such as image/png")
        return cls(data, "blob", media_type)

    @classmethod
    def of(cls, content: object) -> Value:
        """A Value as it is; a str as text; anything else as a JSON document (None becomes JSON null).

        Raises:
            ValueError: it holds NaN, Infinity or a lone surrogate.
            TypeError: JSON has no form for it.
        """
        if type(content) is cls:
            return content
        if isinstance(content, str):
            return cls(content)
        return cls(_json.dumps(content), "json")

    @property
    def text(self) -> str:
        """The text; of a JSON document the document as it was written.

        Raises:
            TypeError: the value is bytes.
        """
        if isinstance(self.body, str):
            return self.body
        raise TypeError(f"{self.media_type} has no text")

    @property
    def data(self) -> Json:
        """The text as a str, the JSON document as Python objects (parsed at each access), the bytes as bytes."""
        return _json.loads(self.body) if self.kind == "json" and isinstance(self.body, str) else self.body

    def __str__(self) -> str:
        """The text, or for bytes what they are."""
        return self.body if isinstance(self.body, str) else f"<{len(self.body)} bytes of {self.media_type}>"


ValueDraft = draft(Value)


def text_value(text: str) -> Value:
    """A plain text as a value, made quickly."""
    made = ValueDraft()
    made.body = text
    made.kind = "text"
    made.media_type = ""
    made.__class__ = Value
    value: Value = made
    return value


NULL = Value("null", "json")
"""JSON null, which is not the same as no value."""

ValueLike: TypeAlias = Value | str | int | float | bool | list[Any] | dict[str, Any]
"""What may stand for a Value when one is built: text as str, JSON as Python objects."""

JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object as a Python mapping."""


def maybe(content: ValueLike | None) -> Value | None:
    """None stays None; anything else becomes a Value."""
    return content if content is None or type(content) is Value else Value.of(content)


def object_text(content: JsonObject | str | None) -> str:
    """The text of a JSON object: "" for none, a str as it is, a mapping as compact JSON."""
    if not content:
        return ""
    return content if isinstance(content, str) else _json.dumps(dict(content))


def object_data(text: str) -> dict[str, Any]:
    """The JSON object behind a text; {} for "".

    Raises:
        ValueError: the text is not a JSON object.
    """
    if not text:
        return {}
    parsed = _json.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError("not a JSON object")
    return parsed
