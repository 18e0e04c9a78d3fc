"""`ragas.NAME`: the metrics of Ragas (those of `ragas.metrics.collections`)."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from evalbus._definition import THREADS, Scorer
from evalbus._errors import SettingsInvalid
from evalbus._item import ScoreTask
from evalbus._score import Direction, Score, ScoreDeclaration
from evalbus._value import Value
from evalbus.adapters._adapter import Foreign, Judge, first_line, plugin
from evalbus.adapters._find import library, named
from evalbus.adapters._inputs import (
    accepted_of,
    best_of,
    input_of,
    messages_of,
    missing,
    more_of,
    output_of,
    plain_text,
    text_of,
    texts_of,
)
from evalbus.adapters._openai import API_KEY, BASE_URL, EMBEDDING_MODEL, MODEL, client
from evalbus.adapters._parameters import Parameter, parameters_of
from evalbus.adapters._results import metadata_of, no_value, score_of

_OURS = ("llm", "embeddings", "name", "kwargs")
_LOWER = ("NoiseSensitivity",)
_RANGES = {
    "AnswerRelevancy": (-1.0, 1.0),  # a mean of cosines
    "SemanticSimilarity": (-1.0, 1.0),
    "DomainSpecificRubrics": (1.0, 5.0),
    "InstanceSpecificRubrics": (1.0, 5.0),
    "RubricsScoreWithReference": (1.0, 5.0),
    "RubricsScoreWithoutReference": (1.0, 5.0),
}
_TEXTS = ("retrieved_contexts", "reference_contexts", "reference_topics")
_MODEL_OPTIONS = (
    Parameter("temperature", float, None, "Of the model; else what Ragas uses."),
    Parameter("max_tokens", int, None, "Of one answer of the model; else what Ragas uses."),
)


def adapt(name: str) -> Scorer[Any, Any]:
    """One of its metrics as a plugin.

    Raises:
        AdapterError: there is none of this name, or Ragas is not installed.
    """
    os.environ.setdefault("RAGAS_DO_NOT_TRACK", "true")
    metrics = library("ragas.metrics.collections", "ragas")
    kind: Any = named("ragas", name, [metrics], _is_metric, "metric")
    takes = inspect.signature(kind).parameters
    asked: list[Parameter] = []
    if "llm" in takes:
        asked += [MODEL, *_MODEL_OPTIONS]
    if "embeddings" in takes:
        asked.append(EMBEDDING_MODEL)
    if asked:
        asked += [BASE_URL, API_KEY]
    promised = _promised(kind)
    return plugin(
        Foreign(
            name=kind.__name__,
            version=library("ragas").__version__,
            description=first_line(kind),
            inputs=tuple(_arguments_of(kind)),
            parameters=(*parameters_of(kind, without=_OURS), *asked),
            prepare=lambda settings: _prepare(kind, settings, promised),
            score=promised,
            source=kind,
        )
    )


def _is_metric(found: Any) -> bool:
    base = library("ragas.metrics.collections").BaseMetric
    return inspect.isclass(found) and issubclass(found, base) and found is not base


def _promised(kind: Any) -> ScoreDeclaration:
    low, high = _RANGES.get(kind.__name__, (0.0, 1.0))
    lower = kind.__name__ in _LOWER
    return ScoreDeclaration(
        minimum=low, maximum=high, direction=Direction.LOWER_IS_BETTER if lower else Direction.HIGHER_IS_BETTER
    )


def _arguments_of(kind: Any) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(kind.ascore).parameters)
    return {
        name: parameter
        for name, parameter in found.items()
        if name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    }


def _prepare(kind: Any, settings: dict[str, Any], promised: ScoreDeclaration) -> Judge:
    settings = dict(settings)
    takes = inspect.signature(kind).parameters
    base_url, api_key = settings.pop("base_url", None), settings.pop("api_key", None)
    model, embedding_model = settings.pop("model", None), settings.pop("embedding_model", None)
    options = {key: settings.pop(key) for key in ("temperature", "max_tokens") if key in settings}
    for key, given in (("llm", model), ("embeddings", embedding_model)):
        if key in takes and not given and takes[key].default is inspect.Parameter.empty:
            name = "model" if key == "llm" else "embedding_model"
            raise SettingsInvalid(f"settings.{name}: missing; Ragas has no model of its own", f"settings.{name}")

    def make() -> Any:
        made = dict(settings)
        if "llm" in takes and model:
            asked = client(base_url, api_key)
            made["llm"] = library("ragas.llms").llm_factory(model, client=asked, max_retries=0, **options)
        if "embeddings" in takes and embedding_model:
            made["embeddings"] = _embeddings(embedding_model, base_url, api_key)
        return kind(**made)

    metric = make()
    # Those that embed do it in the middle of their coroutines, and would hold up everything on their loop.
    ascore = _Apart(make).ascore if "embeddings" in takes else metric.ascore
    arguments = _arguments_of(kind)

    async def judge(task: ScoreTask) -> Score:
        given = {
            name: found
            for name, parameter in arguments.items()
            if name != "reference" and (found := _given(task, parameter)) is not None
        }
        if "reference" not in arguments:
            return _score(await ascore(**given))
        accepted = accepted_of(task, "reference")
        if not accepted and arguments["reference"].default is not inspect.Parameter.empty:
            return _score(await ascore(**given))

        async def against(expected: Value) -> Score:
            return _score(await ascore(**given, reference=text_of(expected, "expected answer")))

        return await best_of(accepted, against, promised)

    return judge


def _embeddings(model: str, base_url: str | None, api_key: str | None) -> Any:
    """Embeddings for coroutines and for plain calls: Ragas would send both through one client, which then fails."""
    base = library("ragas.embeddings.openai_provider").OpenAIEmbeddings
    plain = client(base_url, api_key, plain=True)

    class Embeddings(base):  # type: ignore[misc, valid-type]  # known at run time only
        def embed_text(self, text: str, **more: Any) -> list[float]:
            found: list[float] = plain.embeddings.create(input=text, model=model, **more).data[0].embedding
            return found

        def embed_texts(self, texts: list[str], **more: Any) -> list[list[float]]:
            answer = plain.embeddings.create(input=texts, model=model, **more)
            return [each.embedding for each in answer.data]

    return Embeddings(client=client(base_url, api_key), model=model)


class _Apart:
    """Threads that each have a loop and a metric of their own."""

    def __init__(self, make: Callable[[], Any]) -> None:
        """No thread is started yet."""
        self._make = make
        self._threads = ThreadPoolExecutor(THREADS, "metric")
        self._own = threading.local()

    async def ascore(self, **given: Any) -> Any:
        """As the metric's own."""
        context = contextvars.copy_context()
        work = functools.partial(context.run, self._work, given)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _work(self, given: dict[str, Any]) -> Any:
        own = self._own
        if not hasattr(own, "loop"):
            own.loop, own.metric = asyncio.new_event_loop(), self._make()
        return own.loop.run_until_complete(own.metric.ascore(**given))


def _given(task: ScoreTask, parameter: inspect.Parameter) -> Any:
    """What one argument of a metric gets; None for one that may be left out and is not there."""
    name = parameter.name
    annotation = str(parameter.annotation)
    if name == "user_input":
        if "Message" in annotation:
            return _messages(task)
        return text_of(input_of(task, name), "input")
    if name == "response":
        return text_of(output_of(task, name), "output")
    found = more_of(task, name)
    if found is None:
        if parameter.default is parameter.empty:
            missing(name)
        return None
    if name in _TEXTS:
        return texts_of(found)
    if name == "reference_tool_calls":
        return [_tool_call(entry) for entry in found] if isinstance(found, list) else [_tool_call(found)]
    return found if isinstance(found, dict) else plain_text(found)


def _messages(task: ScoreTask) -> list[Any]:
    """The conversation in the messages of Ragas, with the tools that were called."""
    messages = library("ragas.messages")
    made: list[Any] = []
    calls = [_tool_call({"name": call.name, "args": call.arguments}) for call in task.output.tool_calls]
    told = [message for message in messages_of(task) if message[0] in ("user", "assistant")]
    for place, (role, text) in enumerate(told):
        if role == "user":
            made.append(messages.HumanMessage(content=text))
        else:
            last = place == len(told) - 1
            made.append(messages.AIMessage(content=text, tool_calls=calls if last and calls else None))
    return made


def _tool_call(entry: Any) -> Any:
    call = {"name": entry} if isinstance(entry, str) else dict(entry)
    arguments = call.get("args", call.get("arguments")) or {}
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    return library("ragas.messages").ToolCall(name=call["name"], args=arguments)


def _score(found: Any) -> Score:
    """Ragas gives NaN where it could not judge, for instance when the model's answer made no sense."""
    value = getattr(found, "value", found)
    reason = getattr(found, "reason", None) or ""
    if isinstance(value, str):
        raise no_value(f"the metric gave {value!r:.80}, not a number", reason)
    return score_of(value, reason, metadata=metadata_of(getattr(found, "traces", None)))
