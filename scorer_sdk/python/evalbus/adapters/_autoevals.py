"""`autoevals.NAME`: the scorers of autoevals."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from evalbus._definition import Scorer
from evalbus._errors import TrialFailed
from evalbus._failure import FailureCategory
from evalbus._item import ScoreTask
from evalbus._score import Score, ScoreDeclaration
from evalbus._value import Value
from evalbus.adapters._adapter import Foreign, Judge, first_line, plugin
from evalbus.adapters._find import library, named
from evalbus.adapters._inputs import accepted_of, best_of, missing, more_of, output_of, plain_text, text_of
from evalbus.adapters._openai import API_KEY, BASE_URL, EMBEDDING_MODEL, MODEL, client
from evalbus.adapters._parameters import Parameter, parameters_of
from evalbus.adapters._results import metadata_of, score_of

_VARIABLE = re.compile(r"\{\{\{?\s*([#^&/]?)\s*(\w+)\s*\}?\}\}")
_OF_CLIENT = ("client", "api_key", "base_url", "engine", "model", "embedding_model")
_NUMBERS = ("NumericDiff",)
_WITHOUT_EXPECTED = ("AnswerRelevancy", "ContextRelevancy", "Faithfulness", "Moderation", "ValidJSON")
_ON_CONTEXT = (
    *("AnswerRelevancy", "ContextEntityRecall", "ContextPrecision", "ContextRecall", "ContextRelevancy"),
    "Faithfulness",
)
_PROMISED = ScoreDeclaration()


class _NeverRaised(Exception):
    """In the place of the error upon which autoevals tries again, up to a hundred times."""


def adapt(name: str) -> Scorer[Any, Any]:
    """One of its scorers as a plugin.

    Raises:
        AdapterError: there is none of this name, or autoevals is not installed.
    """
    autoevals = library("autoevals")
    kind: Any = named("autoevals", name, [autoevals], _is_scorer, "scorer")
    asks = issubclass(kind, library("autoevals.llm").OpenAIScorer) or _takes(kind, "client")
    asked = (MODEL, EMBEDDING_MODEL, BASE_URL, API_KEY) if asks or _holds_scorers(kind) else ()
    return plugin(
        Foreign(
            name=kind.__name__,
            version=library("autoevals.version").VERSION,
            description=first_line(kind),
            inputs=tuple(dict.fromkeys(("output", "expected", *_inputs(kind)))),
            parameters=(*_parameters(kind), *asked),
            prepare=lambda settings: _prepare(kind, settings, texts=asks, asks=bool(asked)),
            score=_PROMISED,
            source=kind,
        )
    )


def _prepare(kind: Any, settings: dict[str, Any], *, texts: bool, asks: bool) -> Judge:
    autoevals = library("autoevals")
    settings = dict(settings)
    base_url, api_key = settings.pop("base_url", None), settings.pop("api_key", None)
    usual = _models(kind, settings)
    if _takes(kind, "name"):
        settings.setdefault("name", kind.__name__)
    for key, given in settings.items():
        if key.endswith("_scorer") and isinstance(given, str):
            settings[key] = named("autoevals", given, [autoevals], _is_scorer, "scorer")()
    llm = _client(base_url, api_key) if asks else None
    if asks:  # what a constructor asks for is what the settings say
        autoevals.init(client=llm, default_model=usual)
    scorer = kind(**settings)

    async def judge(task: ScoreTask) -> Score:
        if asks:
            autoevals.init(client=llm, default_model=usual)  # of this trial's own context
        arguments = _arguments(scorer, task)
        output = output_of(task)
        if not _wants_expected(scorer):
            second = arguments.pop("schema", None)  # in the place of an expected answer
            return _score(await scorer.eval_async(_given(scorer, output, "output", texts), second, **arguments))

        async def against(expected: Value) -> Score:
            return _score(
                await scorer.eval_async(
                    _given(scorer, output, "output", texts),
                    _given(scorer, expected, "expected answer", texts),
                    **arguments,
                )
            )

        return await best_of(accepted_of(task), against, _PROMISED)

    return judge


def _models(kind: Any, settings: dict[str, Any]) -> dict[str, str] | None:
    """The models by their purpose, taken out of the settings where the constructor does not take them."""
    models = {"completion": settings.get("model"), "embedding": settings.pop("embedding_model", None)}
    if kind.__name__ in ("EmbeddingSimilarity", "AnswerSimilarity"):
        models["embedding"] = models["embedding"] or settings.get("model")
    if not _takes(kind, "model"):
        settings.pop("model", None)
    return {key: model for key, model in models.items() if model} or None


def _client(base_url: str | None, api_key: str | None) -> Any:
    made = library("autoevals.oai").LLMClient(openai=client(base_url, api_key), is_async=True)
    made.RateLimitError = _NeverRaised
    return made


def _score(found: Any) -> Score:
    if found.error is not None:
        raise found.error
    metadata = metadata_of(found.metadata) or {}
    why = metadata.get("rationale") or metadata.get("reason") or ""
    label = metadata.get("choice")
    return score_of(
        found.score,
        why if isinstance(why, str) else "",
        label=label if isinstance(label, str) else "",
        metadata=metadata or None,
    )


def _given(scorer: Any, value: Value, what: str, texts: bool) -> Any:
    """A value as the scorer takes it: those that ask a model take texts, the others data."""
    if texts:
        return text_of(value, what)
    data = value.data
    if type(scorer).__name__ in _NUMBERS and isinstance(data, str):
        try:
            return float(data)
        except ValueError:
            text = f"the {what} {data[:80]!r} is no number"
            raise TrialFailed(text, FailureCategory.INVALID, reason="NOT_A_NUMBER") from None
    return data


def _arguments(scorer: Any, task: ScoreTask) -> dict[str, Any]:
    """Everything but output and expected answer."""
    given: dict[str, Any] = {}
    required = {*_prompt_variables(scorer), *(("context",) if type(scorer).__name__ in _ON_CONTEXT else ())}
    for name in dict.fromkeys((*_inputs(type(scorer)), *required)):
        found = more_of(task, name)
        if name in ("input", "instructions") and found is None:
            found = text_of(task.item.input, "input")
        if found is None:
            if name in required:
                missing(name)
        elif name == "schema":
            given[name] = found
        else:
            given[name] = found if isinstance(found, list) else plain_text(found)
    if getattr(scorer, "schema", None) is not None:  # ValidJSON would not look at it
        given.setdefault("schema", scorer.schema)
    return given


# --- what a scorer takes ----------------------------------------------------------------------------------------


def _is_scorer(found: Any) -> bool:
    base = library("autoevals.score").Scorer
    return inspect.isclass(found) and issubclass(found, base) and not inspect.isabstract(found)


def _takes(kind: Any, name: str) -> bool:
    return name in inspect.signature(kind).parameters


def _holds_scorers(kind: Any) -> bool:
    """Whether it compares by another scorer, which may be one that asks a model."""
    return any(name.endswith("_scorer") for name in inspect.signature(kind).parameters)


def _parameters(kind: Any) -> list[Parameter]:
    found = []
    for each in parameters_of(kind, without=_OF_CLIENT):
        if each.name.endswith("_scorer"):
            each = Parameter(each.name, str, None, "The name of a scorer of autoevals.")
        found.append(Parameter("name", str, kind.__name__) if each.name == "name" else each)
    return found


def _inputs(kind: Any) -> list[str]:
    """The names of what it may be given besides output and expected answer."""
    if issubclass(kind, library("autoevals.llm").LLMClassifier):
        return _variables(_template_of(kind)) or ["input", "context", "criteria", "instructions"]
    known = inspect.signature(kind._run_eval_sync).parameters
    return [name for name in known if name not in ("self", "output", "expected", "kwargs")]


def _prompt_variables(scorer: Any) -> list[str]:
    """What its prompt cannot do without."""
    prompts = "".join(message["content"] for message in getattr(scorer, "messages", ()))
    return [name for name in _variables(prompts) if name not in scorer.render_args] if prompts else []


def _variables(template: str) -> list[str]:
    """The variables of a template besides output and expected answer; its sections may be left out."""
    found = _VARIABLE.findall(template)
    optional = {name for mark, name in found if mark in ("#", "^")}
    own = optional | {"output", "expected", "__choices"}
    return list(dict.fromkeys(name for mark, name in found if not mark and name not in own))


def _template_of(kind: Any) -> str:
    """The prompt of a classifier that brings its own; "" of any other."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    path = Path(str(library("autoevals.llm").__file__)).parent / "templates" / f"{name}.yaml"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _wants_expected(scorer: Any) -> bool:
    """Whether it compares with an expected answer."""
    prompts = "".join(message["content"] for message in getattr(scorer, "messages", ()))
    if prompts:
        return any(name == "expected" for _, name in _VARIABLE.findall(prompts))
    return type(scorer).__name__ not in _WITHOUT_EXPECTED
