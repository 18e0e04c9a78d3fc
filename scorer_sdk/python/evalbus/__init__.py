"""evalbus: write targets and scorers for an evaluation server, and talk to one.

A *target* is the system under test, a *scorer* judges its outputs. Both are plain functions:

    from evalbus import Item, Output, Score, scorer, serve

    @scorer("exact-match", version="1.0.0")
    def exact_match(item: Item, output: Output) -> Score:
        if item.expected is None:
            return Score.skipped("the item has no expected answer")
        return Score.scored(output.text.strip() == item.expected.text.strip())

    if __name__ == "__main__":
        serve(exact_match)

Programs that start runs and follow them use `evalbus.client`.
"""

import importlib
from typing import TYPE_CHECKING

from evalbus._context import Context
from evalbus._definition import Scorer, Target, scorer, target
from evalbus._errors import (
    CallFailed,
    ContractBroken,
    EvalbusError,
    NotScorable,
    PluginInvalid,
    SettingsInvalid,
    TrialFailed,
)
from evalbus._failure import Failure, FailureCategory, FailureOrigin
from evalbus._item import Item, ScoreTask, ToolMock, Trial, TrialLimits
from evalbus._metric import Metric, MetricValue, ScoreRow, metric
from evalbus._output import (
    Message,
    Money,
    Output,
    Span,
    Timing,
    ToolCall,
    ToolMockFault,
    ToolMockFaultKind,
    ToolMockReport,
    Usage,
)
from evalbus._plugin import Isolation, MetricDeclaration, Need, PluginInfo, Purpose, ScorerInfo, TargetInfo
from evalbus._score import Direction, Score, ScoreDeclaration, ScoreStatus, ScoreStep
from evalbus._tools import ToolBox, ToolFailed, ToolMockFailed
from evalbus._value import NULL, Value
from evalbus._version import VERSION as __version__

if TYPE_CHECKING:
    from evalbus._serve import Server, serve, start_server
    from evalbus.bench import ScorerBench, TargetBench

__all__ = [
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

# These need grpc or asyncio, which cost more to import than everything above: a program pays when it uses them.
_LATER = {
    "ScorerBench": "evalbus.bench",
    "Server": "evalbus._serve",
    "TargetBench": "evalbus.bench",
    "serve": "evalbus._serve",
    "start_server": "evalbus._serve",
}


def __getattr__(name: str) -> object:
    """Import what is used seldom, or late, when it is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
