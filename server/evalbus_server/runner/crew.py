"""The plugins of one run: reached, opened, named; and the score keys that follow from what they declare."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evalbus import FailureOrigin, PluginInfo, ScorerInfo, TrialLimits
from evalbus._adapted import OF_LIBRARIES, looks_adapted
from evalbus._definition import Plugin as Definition
from evalbus._definition import Scorer as ScorerDefinition
from evalbus._plugin import Open
from evalbus._reduce import Reduction
from evalbus_server.errors import Denied, Invalid, Reason, Unfit
from evalbus_server.model.bounds import Limits
from evalbus_server.model.environment import resolve_env
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.faults import BUILTINS_LISTED, suggestion
from evalbus_server.model.plugin_use import MetricUse, PluginUse, ScorerUse
from evalbus_server.model.run import PluginIdentity, ScoreKey
from evalbus_server.model.secrets import secrets_of
from evalbus_server.plugin.allowance import Shared
from evalbus_server.plugin.discreet import DiscreetPlugin
from evalbus_server.plugin.exchange import Exchange
from evalbus_server.plugin.pool import Pools
from evalbus_server.plugin.port import Batches, Flight, Reachable, Reduced
from evalbus_server.plugin.rules import Rules
from evalbus_server.runner.budget import Budget, Purse
from evalbus_server.runner.names import score_keys, scorer_names
from evalbus_server.scorer.mapping import Path, parse_path
from evalbus_server.scorer.metrics import AMONG_METRICS, METRICS, AskedMetric, asked_metric


@dataclass(frozen=True, slots=True)
class Wanted:
    """A plugin to be made: with its secrets resolved, and what its trials are told of the run."""

    use: PluginUse
    scorer: bool
    items: int
    experiment: Experiment
    definition: Definition[Any, Any] | None
    """Of a plugin in this process."""
    token: str
    environment: Mapping[str, str]


MakePlugin = Callable[[Wanted], Reachable]


@dataclass(frozen=True, slots=True)
class Means:
    """What crews are made with."""

    make_plugin: MakePlugin
    builtins: Mapping[str, Definition[Any, Any]]
    commands: frozenset[tuple[str, ...]] | None = None
    """The commands that may be started; None: all (an embedded run starts what its file says)."""
    pools: Pools = field(default_factory=Pools)
    """Places at plugins that the runs of a server share."""

    def in_process(
        self, given: Mapping[str, Definition[Any, Any]], *, scorers: bool
    ) -> dict[str, Definition[Any, Any]]:
        """The scorers, or the targets, that can be named without saying how to reach them."""
        known = {**self.builtins, **given}
        return {name: each for name, each in known.items() if isinstance(each, ScorerDefinition) is scorers}


@dataclass(frozen=True, slots=True)
class Call:
    """What a crew is called together for."""

    experiment: Experiment
    run_id: str
    session: int
    items: int
    given: Mapping[str, Definition[Any, Any]]
    """Functions that an embedded run was given, by name."""


class Crew:
    """The plugins of one session of a run."""

    def __init__(self, call: Call, means: Means) -> None:
        """Nobody is reached yet."""
        self._call = call
        self._means = means
        self.target: Exchange | None = None
        self.scorers: list[Exchange] = []
        self.infos: list[PluginInfo] = []
        """What the plugins said of themselves: the target first, if there is one."""
        self.names: list[str] = []
        self.keys: tuple[ScoreKey, ...] = ()
        self.paths: list[dict[str, Path]] = []
        """The mapped inputs of each scorer."""
        self.metrics: list[list[AskedMetric]] = []
        """What is asked of each scorer once the run is complete."""
        self.openings: list[Open] = []
        """With which each scorer's conversation was opened."""
        self.resting = False
        """Nobody is there: the run waits for its turn, or the plugins were only looked at."""
        self.budget = Budget(call.experiment.limits)
        self._purses: list[Purse] = []
        self._plugins: list[Reachable] = []
        self.on_target: Callable[[list[Flight]], None] = _nobody
        self.on_scorer: Callable[[int, list[Flight]], None] = _nobody
        self.on_left: Callable[[int, list[Flight]], None] = _nobody
        """Is told, by role (-1: the target, else the scorer), of trials whose attempts have failed, without a result yet."""

    async def assemble(self) -> None:
        """Reach all plugins and open their conversations, so that settings are judged before the first trial.

        Raises:
            ServerError: one of them cannot be reached, refuses, or does not fit; nothing is left open then.
        """
        try:
            experiment = self._call.experiment
            uses: list[tuple[PluginUse, str]] = []
            if experiment.target is not None:
                uses.append((experiment.target, "target"))
            uses.extend((use, f"scorers[{index}]") for index, use in enumerate(experiment.scorers))
            self._plugins = [self._make(use, where) for use, where in uses]
            if secrets := secrets_of([use for use, _ in uses], os.environ):
                self._plugins = [DiscreetPlugin(plugin, secrets) for plugin in self._plugins]
            self.infos = await _all([plugin.reach() for plugin in self._plugins])
            for (use, where), info in zip(uses, self.infos, strict=True):
                _check_inputs(use, where, info)
            if experiment.cache and experiment.target is not None and not self.infos[0].digest:
                message = (
                    f"cache: target {self.infos[0].name!r} says no digest, so nobody could tell when it has changed"
                )
                raise Invalid(
                    Reason.EXPERIMENT_INVALID, f"{message}; let it say one, or leave cache out", field="cache"
                )
            self.paths = [
                {name: parse_path(path, f"scorers[{index}].map.{name}") for name, path in use.map.items()}
                for index, use in enumerate(experiment.scorers)
            ]
            self.metrics = [
                self._asked_metrics(index, use.metrics) if use.metrics else []
                for index, use in enumerate(experiment.scorers)
            ]
            plugins = list(self._plugins)
            if experiment.target is not None:
                self.target = self._exchange(experiment.target, "target", plugins.pop(0), self._target_done)
            for index, (use, plugin) in enumerate(zip(experiment.scorers, plugins, strict=True)):
                done = functools.partial(self._scorer_done, index)
                self.scorers.append(self._exchange(use, f"scorers[{index}]", plugin, done))
            for role, exchange in enumerate(self._exchanges, 0 if self.target is None else -1):
                exchange.tell_of_left(functools.partial(self._left, role))
            await _all([exchange.open() for exchange in self._exchanges])
            scorer_infos = self.infos[-len(self.scorers) :] if self.scorers else []
            self.names = scorer_names(experiment.scorers, scorer_infos)
            declared = [_declared(exchange, info) for exchange, info in zip(self.scorers, scorer_infos, strict=True)]
            self.keys = score_keys(self.names, experiment.scorers, declared)
        except BaseException:
            await self.dismiss()
            raise

    async def rest(self) -> None:
        """Let go of the plugins while the run waits for its turn; what was learned of them stays."""
        await self.dismiss()
        self.target, self.scorers = None, []
        self.resting = True

    async def come_back(self) -> None:
        """Reach the plugins again after a rest.

        Raises:
            Unfit: PLUGIN_CHANGED: one is another by now.
            ServerError: as in `assemble`.
        """
        before = self.identities, self.keys
        self.openings, self._purses, self.budget = [], [], Budget(self._call.experiment.limits)
        await self.assemble()
        self.resting = False
        if (self.identities, self.keys) != before:
            await self.rest()
            raise Unfit(
                Reason.PLUGIN_CHANGED,
                "a plugin was changed while the run waited for its turn: resume it with --accept-changed, or start a new run",
            )
        self.change(self._call.experiment)

    async def dismiss(self) -> None:
        """Break off what is open, and let go of the plugins; launched processes end."""
        await asyncio.gather(*(exchange.close() for exchange in self._exchanges), return_exceptions=True)
        await asyncio.gather(*(plugin.close() for plugin in self._plugins), return_exceptions=True)
        self._plugins = []

    async def reduce(self, index: int, asked: Reduction, batches: Batches, limit: float) -> Reduced:
        """Numbers over all rows of a scorer, as it makes them itself.

        Raises:
            ServerError: it cannot be reached, or takes longer than *limit* seconds.
        """
        plugin = self._plugins[len(self._plugins) - len(self.scorers) + index]
        return await plugin.reduce(asked, batches, limit)

    def change(self, experiment: Experiment) -> None:
        """Go on by the limits of an experiment that is the same in everything else."""
        session = self._call.session
        self._call = replace(self._call, experiment=experiment)
        if self.resting:
            return
        self.budget.change(experiment.limits)
        if self.target is not None:
            self.target.change(_rules(experiment.limits, None, session))
        for exchange, use in zip(self.scorers, experiment.scorers, strict=True):
            exchange.change(_rules(experiment.limits, use, session))

    @property
    def identities(self) -> tuple[PluginIdentity, ...]:
        """What must stay the same of the plugins: the target first, if there is one, then the scorers in order."""
        return tuple(
            PluginIdentity(
                info.name,
                info.version,
                info.digest,
                hashlib.sha256(info.settings_schema.encode()).hexdigest() if info.settings_schema else "",
            )
            for info in self.infos
        )

    @property
    def target_purse(self) -> Purse | None:
        """What the target takes out of the budget."""
        return None if self.target is None else self._purses[0]

    def scorer_purse(self, index: int) -> Purse:
        """What a scorer takes out of the budget."""
        return self._purses[len(self._purses) - len(self.scorers) + index]

    def target_identity(self) -> bytes:
        """All on which answers of the target depend, beside the trial: what it is, and what it was set to."""
        experiment, info = self._call.experiment, self.infos[0]
        use = experiment.target
        assert use is not None
        settings = resolve_env(dict(use.settings), os.environ, "target.settings")
        environment = resolve_env(dict(use.env), os.environ, "target.env")
        parts = [info.name, info.version, info.digest, settings, use.command, environment]
        return json.dumps([*parts, experiment.limits.trial.model_dump()], sort_keys=True).encode()

    def scorer_info(self, index: int) -> ScorerInfo:
        """What only a scorer says of itself."""
        kind = self.infos[len(self.infos) - len(self._call.experiment.scorers) + index].kind
        assert isinstance(kind, ScorerInfo)
        return kind

    def _asked_metrics(self, index: int, uses: Sequence[MetricUse]) -> list[AskedMetric]:
        declared = self.scorer_info(index).metrics
        if "reduce" not in self.infos[len(self.infos) - len(self._call.experiment.scorers) + index].capabilities:
            declared = ()
        return [asked_metric(use, declared, f"scorers[{index}].metrics[{place}]") for place, use in enumerate(uses)]

    # --- making -------------------------------------------------------------------------------------------------

    def _make(self, use: PluginUse, where: str) -> Reachable:
        scorer = isinstance(use, ScorerUse)
        definition = None
        if use.use is not None and use.launched is None:
            definition = self._definition(use.use, scorer, where)
        commands = self._means.commands
        if use.launched is not None and commands is not None and use.launched not in commands:
            raise not_started(use, where)
        if use.address is not None:
            _check_address(use.address, where)
        for name, text in {
            f"{where}.token": use.token,
            **{f"{where}.env.{key}": use.env[key] for key in use.env},
        }.items():
            if "${env:" in text and resolve_env(text, _Anything()) == text:
                message = f"{name}: ${{env:NAME}} stands for a whole value, not for a part of one"
                raise Invalid(Reason.EXPERIMENT_INVALID, message, field=name)
        return self._means.make_plugin(
            Wanted(
                use,
                scorer,
                self._call.items,
                self._call.experiment,
                definition,
                str(resolve_env(use.token, os.environ, f"{where}.token")),
                resolve_env(dict(use.env), os.environ, f"{where}.env"),
            )
        )

    def _definition(self, name: str, scorer: bool, where: str) -> Definition[Any, Any]:
        fitting = self._means.in_process(self._call.given, scorers=scorer)
        if name not in fitting:
            kind = "scorer" if scorer else "target"
            hint = suggestion(name, sorted(fitting), sorted(fitting), BUILTINS_LISTED)
            if not fitting:
                hint = f"; say how the {kind} is reached: command, such as [python, {kind}.py], or address"
            if scorer and looks_adapted(name):
                hint = OF_LIBRARIES
            if scorer and name in METRICS:
                hint = AMONG_METRICS
            message = f"{where}.use: there is no builtin {kind} {name!r}{hint}"
            raise Invalid(Reason.EXPERIMENT_INVALID, message, field=f"{where}.use")
        return fitting[name]

    def _exchange(
        self, use: PluginUse, where: str, plugin: Reachable, done: Callable[[list[Flight]], None]
    ) -> Exchange:
        call = self._call
        limits = call.experiment.limits
        settings = resolve_env(dict(use.settings), os.environ, f"{where}.settings")
        opening = Open(
            plugin=plugin.info.name,
            session_id=f"{call.run_id}.{call.session}.{where}",
            run_id=call.run_id,
            settings_json=json.dumps(settings, ensure_ascii=False) if settings else "",
            tags=call.experiment.tags,
            silence=limits.silence,
        )
        scorer = use if isinstance(use, ScorerUse) else None
        if scorer is not None:
            self.openings.append(opening)
        rules = _rules(limits, scorer, call.session)
        origin = FailureOrigin.TARGET if scorer is None else FailureOrigin.SCORER
        exchange = Exchange(plugin, opening, rules, done, origin=origin)
        purse = self.budget.purse("the target" if scorer is None else f"scorer {scorer.name or plugin.info.name}")
        self._purses.append(purse)
        exchange.share(functools.partial(self._shared, use, plugin.info.name, purse))
        exchange.tell_of_failed(purse.spend)
        return exchange

    def _shared(self, use: PluginUse, name: str, purse: Purse, granted: int) -> list[Shared]:
        """What a plugin's exchange shares: with those of other runs the plugin itself and a named pool, with the others
        of its own the budget."""
        pools: list[Shared] = []
        if use.address is not None:
            pools.append(self._means.pools.get(("plugin", use.address, name), granted))
        named = self._call.experiment.limits.pool
        if named is not None and not isinstance(use, ScorerUse):
            pools.append(self._means.pools.get(("named", named.name), named.concurrency))
        pools.append(purse)
        return pools

    @property
    def _exchanges(self) -> list[Exchange]:
        return self.scorers if self.target is None else [self.target, *self.scorers]

    def _target_done(self, flights: list[Flight]) -> None:
        self.on_target(flights)

    def _scorer_done(self, index: int, flights: list[Flight]) -> None:
        self.on_scorer(index, flights)

    def _left(self, role: int, flights: list[Flight]) -> None:
        self.on_left(role, flights)


def not_started(use: PluginUse, where: str) -> Denied:
    """Why a server does not start something."""
    key, words = ("command", " ".join(use.command)) if use.command is not None else ("use", use.use or "")
    message = f"{where}.{key}: this server does not start {words!r}; it starts only what `commands` of its own configuration lists"
    return Denied(Reason.COMMAND_NOT_ALLOWED, message, field=f"{where}.{key}")


def _rules(limits: Limits, scorer: ScorerUse | None, session: int) -> Rules:
    timeout = limits.timeout if scorer is None or scorer.timeout is None else scorer.timeout
    return Rules(
        concurrency=limits.concurrency if scorer is None else scorer.concurrency,
        timeout=timeout,
        trial_timeout=max(limits.trial_timeout, timeout) if scorer is not None else limits.trial_timeout,
        silence=limits.silence,
        retries=limits.retries,
        session=session,
        trial=trial_limits(limits) if scorer is None else None,
    )


def trial_limits(limits: Limits) -> TrialLimits | None:
    """What each trial may take; None if it is not bounded."""
    bounds = TrialLimits(limits.trial.messages, limits.trial.tokens, limits.trial.steps)
    return None if bounds == TrialLimits() else bounds


class _Anything(dict[str, str]):
    """An environment in which every variable is set."""

    def __missing__(self, name: str) -> str:
        return ""

    def __contains__(self, name: object) -> bool:
        return True


def _check_address(address: str, where: str) -> None:
    """An address without a port would only be found out by waiting for it."""
    if address.startswith(("unix:", "unix-abstract:")):
        return
    port = address.rpartition(":")[2]
    if port == address or not port.isdecimal() or not 0 < int(port) < 65536:
        message = f"{where}.address must end with a port, as in localhost:50051, or be unix:/path, not {address!r}"
        raise Invalid(Reason.EXPERIMENT_INVALID, message, field=f"{where}.address")


def _declared(exchange: Exchange, info: PluginInfo) -> Any:
    assert exchange.ready is not None and isinstance(info.kind, ScorerInfo)
    return exchange.ready.scores or info.kind.scores


def _check_inputs(use: PluginUse, where: str, info: PluginInfo) -> None:
    """A mapped input that the scorer does not know is a slip."""
    if not isinstance(use, ScorerUse) or not isinstance(info.kind, ScorerInfo):
        return
    for name in use.map:
        if name not in info.kind.inputs:
            known = info.kind.inputs
            hint = suggestion(name, known, known) if known else "; it takes none"
            message = f"{where}.map: scorer {info.name!r} takes no input {name!r}{hint}"
            raise Invalid(Reason.EXPERIMENT_INVALID, message, field=f"{where}.map.{name}")
    if use.against is not None and "against" not in info.kind.inputs:
        message = f"{where}.against: scorer {info.name!r} compares no outputs: it has no input 'against'"
        raise Invalid(Reason.EXPERIMENT_INVALID, message, field=f"{where}.against")


async def _all(awaitables: list[Any]) -> list[Any]:
    """All results; the first error is raised once the others have ended too."""
    results = await asyncio.gather(*awaitables, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return list(results)


def _nobody(*_: Any) -> None:
    """A crew that no line listens to: it is only being checked."""
