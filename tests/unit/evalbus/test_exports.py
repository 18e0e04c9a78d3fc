"""What `evalbus` offers, and what it costs to have it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import evalbus

ROOT = Path(__file__).parents[3]

EXPORTED = [
    "NULL",
    "CallFailed",
    "Context",
    "ContractBroken",
    "Direction",
    "EvalbusError",
    "Failure",
    "FailureCategory",
    "FailureOrigin",
    "Isolation",
    "Item",
    "Message",
    "Metric",
    "MetricDeclaration",
    "MetricValue",
    "Money",
    "Need",
    "NotScorable",
    "Output",
    "PluginInfo",
    "PluginInvalid",
    "Purpose",
    "Score",
    "ScoreDeclaration",
    "ScoreRow",
    "ScoreStatus",
    "ScoreStep",
    "ScoreTask",
    "Scorer",
    "ScorerBench",
    "ScorerInfo",
    "Server",
    "SettingsInvalid",
    "Span",
    "Target",
    "TargetBench",
    "TargetInfo",
    "Timing",
    "ToolBox",
    "ToolCall",
    "ToolFailed",
    "ToolMock",
    "ToolMockFailed",
    "ToolMockFault",
    "ToolMockFaultKind",
    "ToolMockReport",
    "Trial",
    "TrialFailed",
    "TrialLimits",
    "Usage",
    "Value",
    "__version__",
    "metric",
    "scorer",
    "serve",
    "start_server",
    "target",
]


def test_the_exported_names_are_these() -> None:
    """A name that comes or goes is a decision."""
    assert evalbus.__all__ == EXPORTED


def test_every_exported_name_is_there() -> None:
    assert [name for name in evalbus.__all__ if getattr(evalbus, name, None) is None] == []


def test_every_exported_name_says_what_it_is() -> None:
    values = {name: getattr(evalbus, name) for name in evalbus.__all__ if name not in ("NULL", "__version__")}

    assert [name for name, value in values.items() if not value.__doc__] == []


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(evalbus, "no_such_thing")


def test_the_version_is_the_distributions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert evalbus.__version__ == project["version"]


def test_importing_it_is_cheap() -> None:
    """A program that only defines plugins pays for neither gRPC nor asyncio."""
    script = "import evalbus, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert not {"grpc", "google", "pydantic", "asyncio", "logging"} & set(done.stdout.split())
