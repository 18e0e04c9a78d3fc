"""Secrets are hidden in texts of others, in each form in which a program may write them (SE-03)."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus_server.model.plugin_use import ScorerUse, TargetUse
from evalbus_server.model.secrets import HIDDEN, SHORTEST, SHORTEST_PART, Secrets, secrets_of

SECRET = 'tölken-"77"/\\x-of-nobody'
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----\n"
words = st.text(st.characters(codec="utf-8", exclude_characters="…"), max_size=30)


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        repr(SECRET),
        quote(SECRET, safe=""),
        SECRET * 3,
        json.dumps({"said": repr([SECRET])}),
    ],
)
def test_a_secret_is_hidden_however_it_is_written(written):
    told = Secrets([SECRET]).hide(f"the key {written} is unknown")
    assert "77" not in told
    assert told.startswith("the key ")
    assert told.endswith(" is unknown")
    assert HIDDEN in told


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("Bearer MARK-2", "unknown token MARK-2"),
        ("postgres://joe:MARK-7@db/x", "password MARK-7 is wrong"),
        (PEM, "bad line MIIEvQIBADANBg"),
        (PEM, "bad key -----BEGIN KEY----- | MIIEvQIBADANBg | kqhkiG9w0BAQEF | -----END KEY-----"),
        (PEM, "bad key " + " ".join(PEM.split())),
        ("MARK-1\n", "got MARK-1"),
    ],
)
def test_what_gives_it_away_by_itself_is_hidden_too(secret, said):
    told = Secrets([secret]).hide(said)
    assert "MARK" not in told
    assert "MII" not in told
    assert "kqh" not in told


def test_what_is_short_stands_in_too_many_words():
    """Or a `1` in the environment would make holes in every number."""
    assert not Secrets(["", "1", "x" * (SHORTEST - 1)])
    assert Secrets(["1"]).hide("11 of 12") == "11 of 12"


@given(before=words, after=words, at=st.integers(0, 200))
def test_nothing_is_left_of_one_that_was_cut(before: str, after: str, at: int):
    """Who cuts a text says so by an ellipsis: what is next to it may be a part of a secret."""
    secret = "0123456789abcdefghijklmnop"
    text = f"{before}{secret}{after}"
    at = at % (len(text) + 1)
    for told in (Secrets([secret]).hide(text[:at] + "…"), Secrets([secret]).hide("…" + text[at:])):
        assert not any(
            secret[place : place + SHORTEST_PART] in told
            and secret[place : place + SHORTEST_PART] not in before + after
            for place in range(len(secret) - SHORTEST_PART + 1)
        )


@given(words)
def test_without_secrets_a_text_stays_as_it_is(text: str):
    assert Secrets([]).hide(text) == text
    assert Secrets(["\N{PILE OF POO}" * SHORTEST]).hide(text) == text


def test_the_secrets_of_plugins_are_their_tokens_what_the_environment_gives_them_and_what_it_calls_a_secret():
    uses = [
        TargetUse(command=("a",), env={"OWN": "${env:ONE}", "LEVEL": "literally"}),
        ScorerUse(use="exact_match", settings={"a": [{"b": "${env:TWO}"}], "c": "plainly", "d": "${env:NONE}"}),
        ScorerUse(address="host:1", token="written"),
        ScorerUse(address="host:2", token="${env:THREE}"),
    ]
    environ = {
        "ONE": "one-one",
        "TWO": "two-two",
        "THREE": "three-three",
        "FOUR": "four-four",
        "DB_PASSWORD": "hunter22",
    }
    secrets = secrets_of(uses, {**environ, "OPENAI_API_KEY": "key-key", "KEYBOARD": "keyboard"})

    told = "one-one two-two three-three written hunter22 key-key"
    assert secrets.hide(told) == " ".join([HIDDEN] * 6)
    other = "four-four literally plainly keyboard"
    assert secrets.hide(other) == other
