"""What is wrong with a text that is to be JSON or TOML, in words that say what to do."""

from __future__ import annotations

import json

_OF_JSON = (
    (
        "Expecting property name",
        "a key in double quotes must stand here; no comma follows the last one, and no comments",
    ),
    ("Expecting ':'", "a colon must stand between a key and its value"),
    ("Expecting ','", "a comma must stand here, or the bracket that ends the list or object"),
    (
        "Expecting value",
        "a value must stand here: a text in double quotes, a number, true, false, null, a list or an object",
    ),
    ("Illegal trailing comma", "no comma may stand behind the last entry"),
    ("Unterminated string", "the text that begins here has no closing quote"),
    ("Invalid control character", 'a line break, tab or the like stands in a text: write it as "\\n" or "\\t"'),
    ("Invalid \\escape", 'a backslash in a text is written twice, as in "C:\\\\data"'),
    ("Invalid \\uXXXX", "four hexadecimal digits must follow \\u"),
    ("Extra data", "something stands behind the end of the document"),
)
_OF_TOML = (
    ("Invalid value", "no value is written so: put text in quotes"),
    ("Expected '=' after a key", "an equals sign must stand behind a key, as in key = 1"),
    ("Expected newline or end of document after a statement", "one key = value stands on a line: put text in quotes"),
    ("Cannot overwrite a value", "this key stands here already, with a value"),
    ("Cannot declare", "this table stands here already"),
    ("Unclosed array", "the list has no closing ]"),
    ("Unterminated string", "the text has no closing quote"),
    ("Illegal character", "a line break or the like stands in a text: close its quotes before, or take three of them"),
    ("Unescaped '\\' in a string", "a backslash in a text is written twice, or the text stands in single quotes"),
)


def json_fault(error: json.JSONDecodeError) -> str:
    """What is wrong at the place of the error."""
    return _said(error.msg, _OF_JSON)


def toml_fault(message: str) -> str:
    """The same of TOML; *message* is what its reader says, without the place."""
    return _said(message, _OF_TOML)


def _said(message: str, known: tuple[tuple[str, str], ...]) -> str:
    found = next((said for begins, said in known if message.startswith(begins)), None)
    return found or f"{message[:1].lower()}{message[1:]}"
