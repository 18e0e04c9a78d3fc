"""The two decorators: which functions fit, and what they say of themselves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import evalbus
from evalbus import (
    Context,
    FailureCategory,
    Isolation,
    Item,
    Need,
    Output,
    PluginInvalid,
    Score,
    ScoreDeclaration,
    Scorer,
    ScorerInfo,
    ScoreTask,
    SettingsInvalid,
    Target,
    TargetInfo,
    Trial,
    TrialFailed,
    scorer,
    target,
)
from evalbus._context import Ticket
from evalbus._definition import OpeningRefused
from evalbus._plugin import Open, Ready

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


@dataclass(frozen=True)
class Manners:
    greeting: str = "hello"


@target("greeter", version="1.0.0")
def greeter(item: Item, settings: Manners) -> str:
    """Greets.

    At length.
    """
    return f"{settings.greeting} {item.input}"


def test_a_decorated_function_is_still_a_function() -> None:
    assert isinstance(greeter, Target)
    assert greeter(Item("q", "you"), Manners("hi")) == "hi you"
    assert (greeter.__name__, repr(greeter)) == ("greeter", "<target 'greeter' 1.0.0>")


def test_a_plugin_describes_itself() -> None:
    info = greeter.info

    assert (info.name, info.version, info.description) == ("greeter", "1.0.0", "Greets.")
    assert (info.kind, info.language, info.max_in_flight) == (TargetInfo(Isolation.SHARED), "python", 256)
    assert info.sdk.startswith("evalbus-python ")
    assert {"cancel", "progress"} <= info.capabilities
    assert json.loads(info.settings_schema)["properties"] == {"greeting": {"type": "string", "default": "hello"}}
    assert len(info.digest) == 32


def test_options_reach_the_description() -> None:
    @target("t", isolation=Isolation.FRESH, max_in_flight=8, digest="abc", description="d")
    def t(item: Item) -> str:
        return ""

    @scorer("s", needs=[Need.EXPECTED], inputs=["context"], deterministic=True)
    def s(output: Output) -> float:
        return 1.0

    assert (t.info.kind, t.info.max_in_flight, t.info.digest) == (TargetInfo(Isolation.FRESH), 8, "abc")
    assert t.info.description == "d"
    assert t.info.settings_schema == ""
    assert s.info.kind == ScorerInfo((ScoreDeclaration(),), (Need.EXPECTED,), ("context",), True)


def test_a_function_without_a_file_has_no_digest() -> None:
    scope: dict[str, Any] = {}
    exec("def f(item): return ''", scope)

    assert target("t")(scope["f"]).info.digest == ""


async def call(plugin: Any, task: Any, opening: Open | None = None) -> Any:
    opened = await plugin.open(opening or Open(run_id="r", tags=("a",)))
    return plugin.bind(opened, lambda _: None)(Ticket(task, (task.trial_id, task.attempt)))


ITEM, OUTPUT = Item("q", "?"), Output("!")
TRIAL, TASK = Trial(1, 2, ITEM, epoch=3), ScoreTask(1, 2, ITEM, OUTPUT, {"context": ITEM.input})


async def test_a_target_gets_what_its_parameters_name() -> None:
    seen: list[Any] = []

    def setup(settings: Manners) -> str:
        return settings.greeting.upper()

    @target("all", setup=setup)
    def everything(anything: Item, context: Context, state: str, settings: Manners, more: int = 7) -> None:
        seen.append((anything, context.trial_id, context.run_id, context.tags, state, settings, more))

    @target("trial")
    def whole(given: Trial) -> None:
        seen.append(given)

    @target("bare")
    def bare(trial, /, *, ctx, **rest):
        seen.append((trial, ctx.epoch, rest))

    for plugin in (everything, whole, bare):
        await call(plugin, TRIAL)
    assert seen == [(ITEM, 1, "r", ("a",), "HELLO", Manners(), 7), TRIAL, (TRIAL, 3, {})]


async def test_a_scorer_gets_what_its_parameters_name() -> None:
    seen: list[Any] = []

    @scorer("all")
    def everything(task: ScoreTask, output: Output, ctx: Context, item: Item) -> None:
        seen.append((task, output, dict(ctx.inputs), item))

    @scorer("usual")
    def usual(item: Item, output: Output) -> None:
        seen.append((item, output))

    @scorer("swapped")
    def swapped(output: Output, item: Item) -> None:
        seen.append((item, output))

    @scorer("only")
    def only(output: Output, extra: str = "x") -> None:
        seen.append((output, extra))

    for plugin in (everything, usual, swapped, only):
        await call(plugin, TASK)
    assert seen == [(TASK, OUTPUT, TASK.inputs, ITEM), (ITEM, OUTPUT), (ITEM, OUTPUT), (OUTPUT, "x")]


async def test_an_annotation_nobody_understands_does_no_harm() -> None:
    @target("t")
    def t(item: Unknown, ctx: Unknown) -> Unknown:
        return item

    assert await call(t, TRIAL) == ITEM


def test_an_object_that_can_be_called_is_a_plugin_too() -> None:
    class Judge:
        async def __call__(self, item: Item, output: Output) -> float:
            return 1.0

    plugin = scorer("judge")(Judge())

    assert plugin.is_async
    assert isinstance(plugin, Scorer)


def _yields(item: Item) -> Any:
    yield item


async def _yields_later(item: Item) -> Any:
    yield item


async def _later(item: Item) -> None: ...


def polite(item: Item, output: Output) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("decorate", "told"),
    [
        (lambda d: d.scorer(polite), '@scorer needs a name: write @scorer("polite") above polite'),
        (lambda d: d.target(polite), '@target needs a name: write @target("polite") above polite'),
        (lambda d: d.metric(len), '@metric needs a name: write @metric("len") above len'),
        (lambda d: d.scorer(name=polite), '@scorer needs a name: write @scorer("polite") above polite'),
        (lambda d: d.scorer(), '@scorer needs a name: write @scorer("my-name")'),
        (lambda d: d.scorer(version="1.0.0"), '@scorer needs a name: write @scorer("my-name")'),
        (lambda d: d.scorer(7), '@scorer: its name is a text, as in @scorer("my-name"), not 7'),
        (
            lambda d: d.scorer("s", "1.0.0"),
            "@scorer: only the name stands without a keyword: write @scorer(\"s\", version=…), not '1.0.0' alone",
        ),
        (lambda d: d.scorer("s", treads=3), '@scorer("s"): there is no option treads=; did you mean threads=?'),
        (
            lambda d: d.metric("m", zzz=3),
            '@metric("m"): there is no option zzz=; known are minimum, maximum, direction,',
        ),
        (
            lambda d: d.scorer("s", scores=ScoreDeclaration()),
            "as in scores=[ScoreDeclaration(maximum=10)], not ScoreDe",
        ),
        (
            lambda d: d.scorer("s", scores=["a", "b"]),
            "scores is a list, as in scores=[ScoreDeclaration(maximum=10)], not",
        ),
        (lambda d: d.scorer("s", scores="ab"), "as in scores=[ScoreDeclaration(maximum=10)], not 'ab'"),
        (lambda d: d.scorer("s", needs=Need.EXPECTED), "needs is a list, as in needs=[Need.EXPECTED], not <Need"),
        (lambda d: d.scorer("s", needs=["expected"]), "as in needs=[Need.EXPECTED], not ['expected']"),
        (lambda d: d.scorer("s", inputs="question"), "inputs is a list, as in inputs=['question'], not 'question'"),
        (
            lambda d: d.scorer("s", metrics=len),
            "as in metrics=[share], of functions decorated with @metric, not <built",
        ),
        (lambda d: d.scorer("s", threads="4"), "threads is a whole number, as in threads=8, not '4'"),
        (lambda d: d.scorer("s", max_in_flight=2.5), "max_in_flight is a whole number, as in max_in_flight=8, not 2.5"),
        (lambda d: d.scorer("s", version=1.0), "version is a text, as in version='1.0.0', not 1.0"),
        (lambda d: d.scorer("s", setup="load"), "setup is a function, as in setup=load, not 'load'"),
        (lambda d: d.target("s", isolation="fresh"), "isolation is Isolation.FRESH or Isolation.SHARED, not 'fresh'"),
    ],
)
def test_a_decorator_that_is_written_wrongly_says_how_it_is_written(decorate: Any, told: str) -> None:
    decorated: Any = evalbus
    with pytest.raises(PluginInvalid) as caught:
        decorate(decorated)(polite)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_scores_that_depend_on_settings_are_a_list_too() -> None:
    def declare(settings: dict[str, Any]) -> Any:
        return ScoreDeclaration() if settings.get("one") else [ScoreDeclaration()]

    judge: Any = scorer("s", scores=declare)(polite)
    with pytest.raises(OpeningRefused, match=r"as in scores=\[ScoreDeclaration"):
        await judge.open(Open("s", settings_json='{"one": true}'))


@pytest.mark.parametrize(
    ("decorate", "text"),
    [
        (lambda: target("a.b")(_later), "neither dots nor control characters"),
        (lambda: target("")(_later), "a name has 1 to 100 characters"),
        (lambda: target("x" * 101)(_later), "a name has 1 to 100 characters"),
        (lambda: target("t")(lambda: None), "it takes no item: give it a first parameter"),
        (lambda: target("t")(lambda item, other: None), "nothing is known for the parameter `other`; known are `item`"),
        (lambda: target("t")(lambda ctx, item: None), "its first parameter is the item"),
        (lambda: target("t")(lambda *, item: None), "its first parameter is the item"),
        (lambda: target("t")(lambda item, settings: None), "annotate `settings`"),
        (lambda: target("t")(_yields), "instead of yielding"),
        (lambda: target("t")(_yields_later), "instead of yielding"),
        (lambda: target("t")(Manners), "decorate a function"),
        (lambda: target("t", mode="inline")(_later), "mode='inline' is for cheap sync functions"),
        (lambda: target("t", mode="fast")(_later), "mode is 'auto' or 'inline'"),  # type: ignore[arg-type]
        (lambda: target("t", threads=0)(_later), "at least 1"),
        (lambda: scorer("s")(lambda item: None), "it takes no output"),
        (lambda: scorer("s")(lambda output, sample: None), "nothing is known for the parameter `sample`"),
        (lambda: scorer("s", scores=[])(lambda output: 1), "at least one score"),
        (lambda: scorer("s", scores=[ScoreDeclaration("a")] * 2)(lambda output: 1), "the same name"),
        (lambda: scorer("s", scores=[ScoreDeclaration("a.b")])(lambda output: 1), "without dots"),
        (lambda: scorer("s", scores=[ScoreDeclaration("a"), ScoreDeclaration()])(lambda output: 1), "has a name"),
        (lambda: target("t", setup=_set_up)(_wants_other), "do not agree on the type"),
    ],
)
def test_a_function_that_does_not_fit_is_refused_with_what_to_change(decorate: Any, text: str) -> None:
    with pytest.raises(PluginInvalid, match=text):
        decorate()


def _set_up(settings: Manners) -> None: ...


def _wants_other(item: Item, settings: dict[str, Any]) -> None: ...


# --- opening ----------------------------------------------------------------------------------------------------


async def test_opening_reads_the_settings() -> None:
    opened = await greeter.open(Open(settings_json='{"greeting": "hi"}'))

    assert (opened.settings, opened.state, opened.ready) == (Manners("hi"), None, Ready(256))
    with pytest.raises(SettingsInvalid, match="did you mean 'greeting'"):
        await greeter.open(Open(settings_json='{"greetings": "hi"}'))


@pytest.mark.parametrize(("revision", "side"), [(0, "upgrade the server"), (2, "upgrade the plugin's SDK")])
async def test_a_revision_that_is_not_spoken_is_refused(revision: int, side: str) -> None:
    with pytest.raises(OpeningRefused, match=side) as caught:
        await greeter.open(Open(revision=revision))

    assert caught.value.failure.reason == "PROTOCOL_MISMATCH"


async def test_scores_may_depend_on_the_settings() -> None:
    @dataclass
    class Rubric:
        criteria: list[str]

    @scorer("rubric", scores=lambda settings: [ScoreDeclaration(name) for name in settings.criteria])
    def rubric(output: Output, settings: Rubric) -> list[Score]:
        return []

    opened = await rubric.open(Open(settings_json='{"criteria": ["a", "b"]}'))
    assert [declaration.name for declaration in opened.ready.scores] == ["a", "b"]
    assert isinstance(rubric.info.kind, ScorerInfo)
    assert rubric.info.kind.scores == (ScoreDeclaration(),)  # the criteria have no default


async def test_set_up_may_be_sync_or_async_with_settings_or_without() -> None:
    async def later(settings: Manners) -> str:
        return settings.greeting

    found = []
    for setup in (lambda: 1, later, lambda settings: settings.greeting):

        @target("t", setup=setup)
        def t(item: Item, state: Any, settings: Manners) -> str:
            return ""

        found.append((await t.open(Open())).state)
    assert found == [1, "hello", "hello"]


async def test_the_settings_type_may_stand_at_setup_alone() -> None:
    @target("t", setup=_set_up)
    def t(item: Item, state: None) -> str:
        return ""

    assert "greeting" in t.info.settings_schema


async def test_a_set_up_that_fails_refuses_the_conversation() -> None:
    def broken() -> None:
        raise RuntimeError("no model here")

    def unavailable() -> None:
        raise TrialFailed.unavailable("try later")

    def picky(settings: Manners) -> None:
        raise SettingsInvalid("settings.greeting: too short", "settings.greeting")

    async def refusal(setup: Any) -> BaseException:
        @target("t", setup=setup)
        def t(item: Item) -> str:
            return ""

        with pytest.raises((OpeningRefused, SettingsInvalid)) as caught:
            await t.open(Open())
        return caught.value

    failed, later, picked = [await refusal(setup) for setup in (broken, unavailable, picky)]
    assert isinstance(failed, OpeningRefused)
    assert (failed.failure.category, failed.failure.reason) == (FailureCategory.INTERNAL, "SETUP_FAILED")
    assert failed.failure.message == "target 't' could not be set up: RuntimeError: no model here"
    assert "no model here" in failed.failure.details["traceback"]
    assert isinstance(later, OpeningRefused)
    assert later.failure.category is FailureCategory.UNAVAILABLE
    assert isinstance(picked, SettingsInvalid)


async def test_whatever_the_authors_code_raises_while_opening_is_a_refusal() -> None:
    @dataclass
    class Picky:
        n: int = 0

        def __post_init__(self) -> None:
            if self.n:
                raise RuntimeError("not like this")

    def none_or_too_many(settings: Picky) -> list[ScoreDeclaration]:
        return [ScoreDeclaration("same")] * settings.n

    @target("t")
    def t(item: Item, settings: Picky) -> str:
        return ""

    @scorer("s", scores=none_or_too_many)
    def s(output: Output) -> float:
        return 1.0

    with pytest.raises(OpeningRefused, match="could not be set up: RuntimeError: not like this"):
        await t.open(Open(settings_json='{"n": 1}'))
    with pytest.raises(OpeningRefused, match="declare at least one score"):
        await s.open(Open())
    with pytest.raises(PluginInvalid, match="`scores` fails with the default settings"):
        _ = s.info
