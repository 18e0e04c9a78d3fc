"""Plain functions as targets and scorers: the two decorators, and what they make."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar

from evalbus._context import Context, Ticket
from evalbus._decorating import decorator, list_of
from evalbus._errors import EvalbusError, NotScorable, PluginInvalid, SettingsInvalid, TrialFailed
from evalbus._failure import Failure, FailureCategory
from evalbus._item import Trial
from evalbus._metric import Metric
from evalbus._plugin import REVISION, Isolation, Need, Open, PluginInfo, Ready, ScorerInfo, TargetInfo
from evalbus._results import failure_of, output_of, scores_of
from evalbus._score import Score, ScoreDeclaration
from evalbus._settings import NoSettings, SettingsType, settings_type
from evalbus._tools import reported
from evalbus._version import VERSION

P = ParamSpec("P")
R = TypeVar("R")

Mode = Literal["auto", "inline"]
ScoresOption: TypeAlias = "Sequence[ScoreDeclaration] | Callable[[Any], Iterable[ScoreDeclaration]] | None"
Call: TypeAlias = Callable[[Ticket], Any]
"""Calls a plugin's function for one trial; an async one returns a coroutine."""

MAX_IN_FLIGHT = 256
THREADS = 32


class OpeningRefused(EvalbusError):
    """A conversation cannot be opened; `failure` says why, for the other side."""

    def __init__(self, failure: Failure) -> None:
        """Carry the failure."""
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Opened:
    """An open conversation: what all its trials share."""

    opening: Open
    ready: Ready
    settings: Any
    state: Any
    """What the plugin's `setup` returned."""


class Plugin(Generic[P, R]):
    """A function as a plugin. It is still called like the function itself."""

    __name__: str
    kind: typing.ClassVar[str]
    holds_threads: typing.ClassVar[bool] = False
    """Whether a conversation holds threads of its own, which `release` ends."""
    _offered: typing.ClassVar[Mapping[str, str]]
    """The names of parameters that a function may have, and what each is."""

    def __init__(self, function: Callable[P, R], name: str, options: Options, names: Mapping[str, Any]) -> None:
        """Take the function apart.

        Raises:
            PluginInvalid: its signature, or an option, does not fit; the text says what to change.
        """
        functools.update_wrapper(self, function)
        self.name = name
        self.options = options
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # asks whether an instance's call is async
        )
        self._owner = f"{self.kind} {name!r}"
        self._check()
        self._parameters = self._read_signature(names)
        self._settings = self._find_settings(names)
        self._digest = _digest(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """For people."""
        return f"<{self._owner} {self.options.version}>"

    @property
    def info(self) -> PluginInfo:
        """What the plugin says of itself."""
        return PluginInfo(
            self.name,
            self._kind_info(),
            version=self.options.version,
            digest=self._digest if self.options.digest is None else self.options.digest,
            sdk=f"evalbus-python {VERSION}",
            language="python",
            lowest_revision=REVISION,
            highest_revision=REVISION,
            capabilities=frozenset(
                {"cancel", "progress", "reduce"} if self.options.metrics else {"cancel", "progress"}
            ),
            max_in_flight=self.options.max_in_flight,
            settings_schema=self._settings.schema,
            description=self.options.description,
        )

    async def open(self, opening: Open) -> Opened:
        """Open a conversation: check revision and settings, run `setup`.

        Raises:
            SettingsInvalid: the settings do not fit; it names the field.
            OpeningRefused: the revision is not spoken here, or the author's code failed. Nothing else is raised.
        """
        if opening.revision != REVISION:
            raise OpeningRefused(revision_failure(opening.revision))
        try:  # an author's code checks the settings, declares the scores, sets up
            settings = self._settings.read(opening.settings_json)
            ready = Ready(self.options.max_in_flight, self._declared(settings))
            state = await self._set_up(settings)
        except (SettingsInvalid, OpeningRefused):
            raise
        except TrialFailed as error:
            raise OpeningRefused(self.failure(error)) from error
        except Exception as error:
            raise OpeningRefused(self._set_up_failure(error)) from error
        return Opened(opening, ready, settings, state)

    def bind(self, opened: Opened, log: Callable[[str], None]) -> Call:
        """The function with everything that does not change within a conversation filled in."""
        sources = {
            "context": lambda ticket: Context(ticket, opened.opening, opened.settings, log),
        }
        return _bind(self.function, self._parameters, sources, {"settings": opened.settings, "state": opened.state})

    def result(self, returned: Any, ticket: Ticket) -> Any:
        """What an answer holds when the function returned this for the ticket's trial.

        Raises:
            ResultInvalid: no answer can be made of it.
        """
        raise NotImplementedError

    def failure(self, error: BaseException) -> Failure:
        """What an answer holds when the function raised this."""
        return failure_of(error, self.name)

    def raised(self, error: BaseException, opened: Opened) -> Any:
        """What an answer holds when the function raised this in a conversation."""
        return self.failure(error)

    def release(self, opened: Opened) -> None:
        """Let go of what a conversation held; it is over."""

    def _kind_info(self) -> TargetInfo | ScorerInfo:
        raise NotImplementedError

    def _source(self, parameter: inspect.Parameter, first: bool, names: Mapping[str, Any]) -> str | None:
        """What a parameter gets, or None if nothing is known by its name."""
        raise NotImplementedError

    def _declared(self, settings: Any) -> tuple[ScoreDeclaration, ...]:
        return ()

    def _check(self) -> None:
        if not 1 <= len(self.name) <= 100 or "." in self.name or not self.name.isprintable():
            raise PluginInvalid(
                f"{self.kind} {self.name!r}: a name has 1 to 100 characters, and neither dots nor control characters"
            )
        self._check_options()
        if inspect.isclass(self.function) or not callable(self.function):
            raise PluginInvalid(f"{self._owner}: decorate a function, not {self.function!r}")
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise PluginInvalid(f"{self._owner}: return one result instead of yielding several")
        if self.options.mode not in ("auto", "inline"):
            raise PluginInvalid(f"{self._owner}: mode is 'auto' or 'inline', not {self.options.mode!r}")
        if self.options.mode == "inline" and self.is_async:
            raise PluginInvalid(
                f"{self._owner}: mode='inline' is for cheap sync functions; leave it out for an async one"
            )
        if self.options.threads < 1 or self.options.max_in_flight < 1:
            raise PluginInvalid(f"{self._owner}: threads and max_in_flight are at least 1")

    def _check_options(self) -> None:
        """Check what can be checked of each option alone."""
        options: Any = self.options  # they are what the author gave, of any type
        for name, number in (("threads", options.threads), ("max_in_flight", options.max_in_flight)):
            if not isinstance(number, int) or isinstance(number, bool):
                raise PluginInvalid(f"{self._owner}: {name} is a whole number, as in {name}=8, not {number!r}")
        for name, text in (("version", options.version), ("description", options.description)):
            if not isinstance(text, str):
                raise PluginInvalid(f"{self._owner}: {name} is a text, as in {name}='1.0.0', not {text!r}")
        if options.setup is not None and not callable(options.setup):
            raise PluginInvalid(f"{self._owner}: setup is a function, as in setup=load, not {options.setup!r}")
        if not isinstance(options.isolation, Isolation):
            known = " or ".join(f"Isolation.{each.name}" for each in Isolation)
            raise PluginInvalid(f"{self._owner}: isolation is {known}, not {options.isolation!r}")

    def _read_signature(self, names: Mapping[str, Any]) -> list[tuple[inspect.Parameter, str]]:
        """Each parameter that gets something, with what it gets."""
        found: list[tuple[inspect.Parameter, str]] = []
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            source = self._source(parameter, not found, names)
            if source is not None:
                found.append((parameter, source))
            elif parameter.default is parameter.empty:
                offered = ", ".join(f"`{name}` ({what})" for name, what in self._offered.items())
                raise PluginInvalid(
                    f"{self._owner}: nothing is known for the parameter `{parameter.name}`; "
                    f"known are {offered}; give any other a default"
                )
        return found

    def _find_settings(self, names: Mapping[str, Any]) -> SettingsType:
        """The settings type, from whichever of the author's functions takes settings."""
        wanted = []
        hints = _hints(self.function, names)
        for parameter, source in self._parameters:
            if source == "settings":
                wanted.append(hints.get(parameter.name, parameter.annotation))
        return self._settings_of(wanted + self._wanted_by_options(names), names)

    def _wanted_by_options(self, names: Mapping[str, Any]) -> list[Any]:
        """The settings types that `setup` and `scores` ask for."""
        wanted = []
        for function in (self.options.setup, self.options.scores):
            if callable(function) and (first := _first(function)) is not None:
                annotation = _hints(function, names).get(first.name, first.annotation)
                if annotation is not first.empty:
                    wanted.append(annotation)
        return wanted

    def _settings_of(self, wanted: Sequence[Any], names: Mapping[str, Any]) -> SettingsType:
        """The settings type of functions that annotate it so."""
        if not wanted:
            return NoSettings()
        if any(other != wanted[0] for other in wanted[1:]):
            raise PluginInvalid(f"{self._owner}: its functions do not agree on the type of the settings")
        if wanted[0] is inspect.Parameter.empty:
            raise PluginInvalid(f"{self._owner}: annotate `settings` with a dataclass, a pydantic model or dict")
        return settings_type(wanted[0], names, self._owner)

    async def _set_up(self, settings: Any) -> Any:
        setup = self.options.setup
        if setup is None:
            return None
        arguments = () if _first(setup) is None else (settings,)
        if inspect.iscoroutinefunction(setup):
            return await setup(*arguments)
        # Here, so that importing evalbus does not cost as much as importing asyncio.
        import asyncio

        state = await asyncio.to_thread(setup, *arguments)  # it may load a model: the loop stays free
        return await state if inspect.isawaitable(state) else state

    def _set_up_failure(self, error: Exception) -> Failure:
        failure = self.failure(error)
        text = f"{self._owner} could not be set up: {failure.message}"
        return Failure(FailureCategory.INTERNAL, text, "SETUP_FAILED", details_json=failure.details_json)


class Target(Plugin[P, R]):
    """A function as a target. Made by `target`."""

    kind = "target"
    _offered: typing.ClassVar[Mapping[str, str]] = {
        "item": "first: an Item, or a Trial if it is annotated so",
        "settings": "a dataclass or pydantic model",
        "ctx": "a Context",
        "state": "what setup returned",
    }

    def result(self, returned: Any, ticket: Ticket) -> Any:
        """The output, with a report on the item's tool mocks if it has any."""
        output = output_of(returned)
        mocks = ticket.task.item.tool_mocks
        return reported(output, ticket.tools, mocks) if mocks else output

    def _kind_info(self) -> TargetInfo:
        return TargetInfo(self.options.isolation)

    def _source(self, parameter: inspect.Parameter, first: bool, names: Mapping[str, Any]) -> str | None:
        if not first:
            return _COMMON.get(parameter.name)
        if parameter.name in _COMMON or parameter.kind is parameter.KEYWORD_ONLY:
            raise PluginInvalid(f"{self._owner}: its first parameter is the item")
        hint = _hints(self.function, names).get(parameter.name, parameter.annotation)
        return "task" if hint is Trial or (hint is parameter.empty and parameter.name == "trial") else "item"

    def _read_signature(self, names: Mapping[str, Any]) -> list[tuple[inspect.Parameter, str]]:
        found = super()._read_signature(names)
        if not found:
            raise PluginInvalid(f"{self._owner}: it takes no item: give it a first parameter `item: Item`")
        return found


class Scorer(Plugin[P, R]):
    """A function as a scorer. Made by `scorer`."""

    kind = "scorer"
    _offered: typing.ClassVar[Mapping[str, str]] = {
        "item": "an Item",
        "output": "an Output",
        "task": "the whole ScoreTask",
        "settings": "a dataclass or pydantic model",
        "ctx": "a Context",
        "state": "what setup returned",
    }

    def result(self, returned: Any, ticket: Ticket) -> Any:
        """The scores."""
        return scores_of(returned)

    def raised(self, error: BaseException, opened: Opened) -> Any:
        """SKIPPED scores if the scorer does not apply, else a failure."""
        if isinstance(error, NotScorable):
            return tuple(Score.skipped(str(error), name=each.name) for each in opened.ready.scores)
        return self.failure(error)

    def _kind_info(self) -> ScorerInfo:
        try:
            declared = self._declared(self._settings.read(""))
        except SettingsInvalid:  # a setting has no default: the effective scores come at `ready`
            scores = self.options.scores
            declared = (ScoreDeclaration(),) if scores is None or callable(scores) else tuple(scores)
        except Exception as error:  # the author's function from settings to scores
            raise PluginInvalid(f"{self._owner}: `scores` fails with the default settings: {error!r}") from error
        options = self.options
        metrics = tuple(each.declaration for each in options.metrics)
        return ScorerInfo(declared, tuple(options.needs), tuple(options.inputs), options.deterministic, metrics)

    def _declared(self, settings: Any) -> tuple[ScoreDeclaration, ...]:
        scores = self.options.scores
        if scores is None:
            return (ScoreDeclaration(),)
        if not callable(scores):
            return tuple(scores)
        found: Any = scores(settings) if _first(scores) is not None else scores()  # type: ignore[call-arg]
        declared: Any = found if isinstance(found, ScoreDeclaration) else tuple(found)
        _check_scores(declared, self._owner)
        return tuple(declared)

    def _check(self) -> None:
        super()._check()
        options = self.options
        list_of(Need, options.needs, self._owner, "needs=[Need.EXPECTED]")
        list_of(str, options.inputs, self._owner, "inputs=['question']")
        list_of(Metric, options.metrics, self._owner, "metrics=[share], of functions decorated with @metric")
        names = [each.declaration.name for each in options.metrics]
        if len(set(names)) != len(names):
            raise PluginInvalid(f"{self._owner}: two of its metrics have the same name")
        if options.scores is not None and not callable(options.scores):
            _check_scores(options.scores, self._owner)

    def _source(self, parameter: inspect.Parameter, first: bool, names: Mapping[str, Any]) -> str | None:
        return parameter.name if parameter.name in ("item", "output", "task") else _COMMON.get(parameter.name)

    def _read_signature(self, names: Mapping[str, Any]) -> list[tuple[inspect.Parameter, str]]:
        found = super()._read_signature(names)
        if not {"output", "task"} & {source for _, source in found}:
            raise PluginInvalid(f"{self._owner}: it takes no output: give it the parameters `item` and `output`")
        return found


@dataclass(frozen=True, slots=True)
class Options:
    """What a decorator was given."""

    version: str = "0.0.0"
    description: str = ""
    digest: str | None = None
    mode: Mode = "auto"
    threads: int = THREADS
    max_in_flight: int = MAX_IN_FLIGHT
    setup: Callable[..., Any] | None = None
    isolation: Isolation = Isolation.SHARED
    scores: ScoresOption = None
    needs: Sequence[Need] = ()
    inputs: Sequence[str] = ()
    deterministic: bool = False
    metrics: Sequence[Metric] = ()


@decorator
def target(  # noqa: PLR0913  # the options of a plugin, each by name
    name: str,
    *,
    version: str = "0.0.0",
    description: str = "",
    isolation: Isolation = Isolation.SHARED,
    setup: Callable[..., Any] | None = None,
    mode: Mode = "auto",
    threads: int = THREADS,
    max_in_flight: int = MAX_IN_FLIGHT,
    digest: str | None = None,
) -> Callable[[Callable[P, R]], Target[P, R]]:
    """Make a function a target, the system under test. It may be sync or async, and can still be called as it is.

    The first parameter is the item (an Item; a Trial if it is annotated so). By name it may also take `settings`
    (annotated with a dataclass or a pydantic model), `ctx` or `context` (a Context) and `state`. It returns an
    Output, a Value, a str, or JSON (dict, list, number, bool), and raises TrialFailed for a trial that it cannot do.

    Args:
        name: 1 to 100 characters, no dots.
        version: as in semantic versioning.
        description: one sentence for people; by default the first line of the docstring.
        isolation: whether trials can influence each other.
        setup: called with the settings (or nothing) when a conversation opens; what it returns is `state`.
        mode: "auto" runs a sync function in threads; "inline" runs a cheap one where it is, without a thread.
        threads: how many trials of a sync function run at the same time, at most.
        max_in_flight: how many unanswered trials the server may leave here.
        digest: identifies the build; by default a hash of the function's source file.

    Raises:
        PluginInvalid: the function or an option does not fit; the text says what to change.
    """
    options = Options(version, description, digest, mode, threads, max_in_flight, setup, isolation)
    return _decorator(Target, name, options)


@decorator
def scorer(  # noqa: PLR0913  # the options of a plugin, each by name
    name: str,
    *,
    version: str = "0.0.0",
    scores: ScoresOption = None,
    needs: Sequence[Need] = (),
    inputs: Sequence[str] = (),
    metrics: Sequence[Metric] = (),
    deterministic: bool = False,
    description: str = "",
    setup: Callable[..., Any] | None = None,
    mode: Mode = "auto",
    threads: int = THREADS,
    max_in_flight: int = MAX_IN_FLIGHT,
    digest: str | None = None,
) -> Callable[[Callable[P, R]], Scorer[P, R]]:
    """Make a function a scorer, a judge of outputs. It may be sync or async, and can still be called as it is.

    Its parameters are known by name: `item`, `output`, `task` (the whole ScoreTask), `settings` (annotated with a
    dataclass or a pydantic model), `ctx` or `context` (a Context) and `state`. It returns a Score, a number or a
    bool, or a sequence of Scores, and raises TrialFailed for an output that it cannot judge, NotScorable for one that
    does not concern it.

    Args:
        name: 1 to 100 characters, no dots.
        version: as in semantic versioning.
        scores: what it promises about its scores, or a function from the settings to that; by default one score
            between 0 and 1.
        needs: what it cannot do without; a task that lacks one is skipped.
        inputs: the named inputs that an experiment may map for it; it finds them in `ctx.inputs` or `task.inputs`.
        metrics: numbers over all trials that an experiment may ask for, made with `metric`.
        deterministic: whether the same task always gets the same scores.
        description: one sentence for people; by default the first line of the docstring.
        setup: called with the settings (or nothing) when a conversation opens; what it returns is `state`.
        mode: "auto" runs a sync function in threads; "inline" runs a cheap one where it is, without a thread.
        threads: how many tasks of a sync function run at the same time, at most.
        max_in_flight: how many unanswered tasks the server may leave here.
        digest: identifies the build; by default a hash of the function's source file.

    Raises:
        PluginInvalid: the function or an option does not fit; the text says what to change.
    """
    options = Options(
        version, description, digest, mode, threads, max_in_flight, setup,
        scores=scores, needs=needs, inputs=inputs, deterministic=deterministic, metrics=metrics,
    )  # fmt: skip
    return _decorator(Scorer, name, options)


def revision_failure(asked: int) -> Failure:
    """Why a protocol revision is refused, and which side to upgrade."""
    side = "plugin's SDK" if asked > REVISION else "server"
    return Failure(
        FailureCategory.INVALID,
        f"the server asks for protocol revision {asked}, this plugin speaks {REVISION} to {REVISION}: "
        f"upgrade the {side}",
        "PROTOCOL_MISMATCH",
        field="revision",
    )


_COMMON = {"settings": "settings", "ctx": "context", "context": "context", "state": "state"}
_Made = TypeVar("_Made", bound=Plugin[Any, Any])


def _decorator(kind: type[Any], name: str, options: Options) -> Callable[[Callable[P, R]], Any]:
    # A settings class may stand inside a function, where only the frame that decorates knows it.
    names = dict(sys._getframe(3).f_locals)

    def decorate(function: Callable[P, R]) -> Any:
        described = options
        if not options.description:
            doc = inspect.getdoc(function) or ""
            described = replace(options, description=doc.partition("\n")[0])
        return kind(function, name, described, names)

    return decorate


def _check_scores(declared: Sequence[ScoreDeclaration], owner: str) -> None:
    list_of(ScoreDeclaration, declared, owner, "scores=[ScoreDeclaration(maximum=10)]")
    names = [declaration.name for declaration in declared]
    if not names:
        raise PluginInvalid(f"{owner}: declare at least one score")
    if len(set(names)) != len(names):
        raise PluginInvalid(f"{owner}: two declared scores have the same name")
    for declaration in declared:
        if "." in declaration.name or (len(names) > 1 and not declaration.name):
            raise PluginInvalid(f"{owner}: each of several scores has a name, without dots, not {declaration.name!r}")


def _hints(function: Callable[..., Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of a function; those that nobody here understands stay text."""
    plain = inspect.unwrap(function)
    plain = plain if inspect.isroutine(plain) else getattr(plain, "__call__", plain)  # noqa: B004
    try:
        return typing.get_type_hints(plain, localns=dict(names))
    except (NameError, TypeError, AttributeError):
        pass
    understood = {}
    scope = {**getattr(plain, "__globals__", {}), **names}
    for name, annotation in getattr(plain, "__annotations__", {}).items():
        try:
            understood[name] = eval(annotation, scope) if isinstance(annotation, str) else annotation
        except Exception:  # imported for type checkers only, for instance
            understood[name] = annotation
    return understood


def _first(function: Callable[..., Any]) -> inspect.Parameter | None:
    """The first parameter that a function must or may be given in place, if it has one."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            return parameter
    return None


def _digest(function: Callable[..., Any]) -> str:
    """A hash of the source file; "" where there is none, as in an interactive session."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(function))
        if not path:
            return ""
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:32]
    except (OSError, TypeError):
        return ""


_FIXED = (["settings"], ["state"])


def _bind(
    function: Callable[..., Any],
    parameters: Sequence[tuple[inspect.Parameter, str]],
    sources: Mapping[str, Callable[[Ticket], Any]],
    fixed: Mapping[str, Any],
) -> Call:
    """A call of the function with its parameters filled from a ticket; *fixed* ones are the same for all tickets."""
    wanted = [source for _, source in parameters]
    in_place = all(parameter.kind is not parameter.KEYWORD_ONLY for parameter, _ in parameters)
    # The usual shapes without any machinery: this is called for every trial.
    if in_place and wanted == ["item"] and _leading(function, parameters):
        return lambda ticket: function(ticket.task.item)
    if in_place and wanted == ["item", "output"] and _leading(function, parameters):
        return lambda ticket: function(ticket.task.item, ticket.task.output)
    if in_place and wanted[:2] == ["item", "output"] and wanted[2:] in _FIXED and _leading(function, parameters):
        (third,) = (fixed[name] for name in wanted[2:])
        return lambda ticket: function(ticket.task.item, ticket.task.output, third)
    parts: dict[str, Callable[[Ticket], Any]] = {
        "item": lambda ticket: ticket.task.item,
        "output": lambda ticket: ticket.task.output,
        "task": lambda ticket: ticket.task,
        "settings": lambda _: fixed["settings"],
        "state": lambda _: fixed["state"],
        **sources,
    }
    place = [parts[source] for parameter, source in parameters if parameter.kind is parameter.POSITIONAL_ONLY]
    named = [
        (parameter.name, parts[source])
        for parameter, source in parameters
        if parameter.kind is not parameter.POSITIONAL_ONLY
    ]
    return lambda ticket: function(*[part(ticket) for part in place], **{name: part(ticket) for name, part in named})


def _leading(function: Callable[..., Any], parameters: Sequence[tuple[inspect.Parameter, str]]) -> bool:
    """Whether these parameters are the function's first, so that they can be given in place."""
    first = list(inspect.signature(function).parameters)[: len(parameters)]
    return first == [parameter.name for parameter, _ in parameters]
