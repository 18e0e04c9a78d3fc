"""The bounds of one trial: messages, tokens and steps, held against what the target tells of it and answers."""

from __future__ import annotations

from evalbus import Failure, FailureCategory, FailureOrigin, Output, TrialLimits, Usage
from evalbus._plugin import TrialProgress


def over_by_news(limits: TrialLimits, news: TrialProgress) -> Failure | None:
    """The failure of a trial that has gone too far, by what the target tells of it; None if it has not."""
    return _over(limits, news.messages, news.usage, news.steps)


def over_by_output(limits: TrialLimits, output: Output) -> Failure | None:
    """The same by what it answered, which has no steps."""
    return _over(limits, len(output.messages), output.usage, 0)


def _over(limits: TrialLimits, messages: int, usage: Usage | None, steps: int) -> Failure | None:
    tokens = 0 if usage is None else usage.input_tokens + usage.output_tokens
    for name, count, limit in (
        ("messages", messages, limits.messages),
        ("tokens", tokens, limits.tokens),
        ("steps", steps, limits.steps),
    ):
        if limit is not None and count > limit:
            message = f"the trial took {count} {name}; limits.trial.{name} is {limit}"
            return Failure(FailureCategory.BUDGET, message, "TRIAL_LIMIT", FailureOrigin.SERVER, retryable=False)
    return None
