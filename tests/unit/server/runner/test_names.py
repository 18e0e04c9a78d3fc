"""What scorers are called when one plugin is used more than once."""

import pytest

from evalbus import Direction, PluginInfo, ScoreDeclaration, ScorerInfo
from evalbus_server.errors import Invalid
from evalbus_server.model.plugin_use import ScorerUse
from evalbus_server.runner.names import score_keys, scorer_names


def named(schema: str, *settings: dict) -> list[str]:
    info = PluginInfo("judge", ScorerInfo((ScoreDeclaration(),)), settings_schema=schema)
    uses = [ScorerUse(address="localhost:1", settings=each) for each in settings]
    return scorer_names(uses, [info] * len(uses))


def test_two_uses_that_are_the_same_are_refused_as_such():
    with pytest.raises(Invalid) as caught:
        named("", {"most": 80}, {"most": 80})

    assert str(caught.value) == (
        "scorers[0] and scorers[1] are both 'judge' with the same settings; leave one out, or give one another `name`"
    )


def test_a_default_tells_two_uses_apart():
    """One leaves out what the other sets."""
    schema = '{"properties": {"model": {"default": "small"}}}'

    assert named(schema, {}, {"model": "large"}) == ["judge[model=small]", "judge[model=large]"]


def test_schemas_without_parts_to_look_into_are_taken_as_they_are():
    """`true` is a schema too, and what a plugin calls one may be anything that is an object."""
    for schema in ('{"properties": {"model": true, "other": false}}', '{"properties": []}', '{"properties": null}', ""):
        assert named(schema, {}, {"model": "large"}) == ["judge[]", "judge[model=large]"]


@pytest.mark.parametrize(
    ("declaration", "hopeless", "possible"),
    [
        (ScoreDeclaration(), 80, 1),
        (ScoreDeclaration("errors", 0, 10, Direction.LOWER_IS_BETTER), -1, 0),
        (ScoreDeclaration("ms", 0, None), None, 1e9),
        (ScoreDeclaration("gain", None, None, Direction.LOWER_IS_BETTER), None, -1e9),
    ],
)
def test_a_threshold_that_no_value_passes_is_refused(declaration, hopeless, possible):
    def keys(threshold: float) -> None:
        score_keys(["judge"], [ScorerUse(use="judge", threshold=threshold)], [[declaration]])

    keys(possible)
    if hopeless is not None:
        with pytest.raises(Invalid, match=rf"scorers\[0\]\.threshold: {hopeless} can never be reached: .* is never"):
            keys(hopeless)
