"""How far an experiment may go: its limits, what it keeps, and what it has to reach."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from evalbus_server.model.faults import in_per_cent
from evalbus_server.model.part import Part
from evalbus_server.model.reducers import REDUCERS_OF_K, RUN_METRICS, SHARES, parse_reducer
from evalbus_server.model.written import LARGEST, Duration, Name, Number, Share, Text, WrittenErrorLimit


class TrialBounds(Part):
    """What each trial may take; None does not bound. The target is told, and one that takes more is ERRORED."""

    messages: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    tokens: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    steps: Annotated[int, Field(ge=1, le=LARGEST)] | None = None


class PoolUse(Part):
    """Places that the targets of all runs share which name this pool."""

    name: Name
    concurrency: Annotated[int, Field(ge=1, le=10_000)]
    """How many there are; the run that started last says it."""


class Limits(Part):
    """Bounds on time, work and trouble. Lengths of time are in seconds."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 10
    timeout: Duration = 60.0
    trial_timeout: Duration = 600.0
    silence: Duration = 120.0
    deadline: Duration | None = None
    retries: Annotated[int, Field(ge=0, le=1000)] = 2
    max_errors: WrittenErrorLimit | None = None
    tokens: Annotated[int, Field(ge=0, le=LARGEST)] | None = None
    cost: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "USD"
    trial: TrialBounds = Field(default_factory=TrialBounds)
    pool: PoolUse | None = None
    """Shared with other runs; None: the target's places are the run's own."""

    @field_validator("cost")
    @classmethod
    def _whole_micros(cls, cost: float | None) -> float | None:
        if cost is not None and Decimal(repr(cost)) * 1_000_000 % 1:
            raise ValueError(f"must have at most six decimals, not {cost!r}")
        return cost

    @property
    def cost_micros(self) -> int | None:
        """The budget in millionths of the currency's unit."""
        return None if self.cost is None else int(Decimal(repr(self.cost)) * 1_000_000)


class Criterion(Part):
    """One condition on a run's numbers."""

    FIRST_KEY = "metric"

    metric: str
    scorer: Name | None = None
    """A score key; None: the run's own number."""
    min: Number | None = None
    max: Number | None = None
    label: Text = ""
    severity: Literal["error", "warn"] = "error"
    min_coverage: Share = 1.0
    baseline: Name | None = None
    """A run to compare with."""
    max_drop: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    @field_validator("metric")
    @classmethod
    def _known(cls, text: str) -> str:
        text = text.strip()
        if text.split("(")[0] in REDUCERS_OF_K:
            return "{}({})".format(*parse_reducer(text))
        return text  # the experiment knows which a scorer makes

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.scorer is not None and self.metric in RUN_METRICS:
            raise ValueError(f"{self.metric} is a number of the run, not of one score; leave scorer out")
        if (self.baseline is None) != (self.max_drop is None):
            raise ValueError("baseline and max_drop go together; give both or neither")
        if self.min is None and self.max is None and self.baseline is None:
            raise ValueError("says no condition; give min, max, or baseline with max_drop")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}, so it never holds")
        if self.metric in SHARES or self.metric.split("(")[0] in REDUCERS_OF_K:
            for key, bound in (("min", self.min), ("max", self.max)):
                if bound is not None and not 0 <= bound <= 1:
                    raise ValueError(f"{key} {bound:g}: {self.metric} is a share, from 0 to 1{in_per_cent(bound, 1)}")
        return self


class Keep(Part):
    """What is kept of a run once it is over; its numbers and the outcomes of its trials are in any case."""

    outputs: bool = True
    """False: of its outputs, and of what was said about them, no word is kept."""
    scores: bool = True
    """False: of its scores only the summary is kept."""

    @property
    def everything(self) -> bool:
        """Whether nothing is to be taken out."""
        return self.outputs and self.scores

    @classmethod
    def of(cls, experiment_json: str) -> Keep:
        """What a stored experiment keeps."""
        return cls.model_validate(json.loads(experiment_json).get("keep") or {})
