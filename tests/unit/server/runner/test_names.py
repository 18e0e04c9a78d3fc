"""What scorers are called when one plugin is used more than once."""

from evalbus import PluginInfo, ScoreDeclaration, ScorerInfo
from evalbus_server.model.experiment import ScorerUse
from evalbus_server.runner.names import scorer_names


def named(schema: str, *settings: dict) -> list[str]:
    info = PluginInfo("judge", ScorerInfo((ScoreDeclaration(),)), settings_schema=schema)
    uses = [ScorerUse(address="localhost:1", settings=each) for each in settings]
    return scorer_names(uses, [info] * len(uses))


def test_a_default_tells_two_uses_apart():
    """One leaves out what the other sets."""
    schema = '{"properties": {"model": {"default": "small"}}}'

    assert named(schema, {}, {"model": "large"}) == ["judge[model=small]", "judge[model=large]"]


def test_schemas_without_parts_to_look_into_are_taken_as_they_are():
    """`true` is a schema too, and what a plugin calls one may be anything that is an object."""
    for schema in ('{"properties": {"model": true, "other": false}}', '{"properties": []}', '{"properties": null}', ""):
        assert named(schema, {}, {"model": "large"}) == ["judge[]", "judge[model=large]"]
