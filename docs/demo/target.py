"""The target of the demo: the support desk as a plugin. One message is one trial."""

from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Literal

from support_desk import Answer, SupportDesk, open_shop

from evalbus import Item, Output, Span, Timing, ToolCall, serve, target

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Settings:
    """Which of the two desks answers."""

    model: Literal["small", "large"] = "large"


def open_desk(settings: Settings) -> SupportDesk:
    """Read the shop's files and fit the classifier: once a run, before the first message."""
    return SupportDesk(open_shop(HERE), settings.model)


@target("support-desk", version="1.0.0", setup=open_desk, mode="inline")
def support_desk(item: Item, settings: Settings, state: SupportDesk) -> Output:
    """Answers a customer's message, with the tool call and the steps that led there."""
    began = time()
    answer = state.answer(item.input.text)
    return Output(
        content={
            "intent": answer.intent,
            "confidence": round(answer.confidence, 4),
            "reply": answer.reply,
            "articles": [hit.article.id for hit in answer.hits],
        },
        answer=answer.intent,
        tool_calls=[_tool_call(answer, began)],
        spans=_spans(answer, began),
        timing=Timing(total=answer.steps[-1].start + answer.steps[-1].duration),
        metadata={"model": settings.model},
    )


def _tool_call(answer: Answer, began: float) -> ToolCall:
    finding = answer.finding
    step = next(step for step in answer.steps if step.name == "tool")
    return ToolCall(
        finding.call.name,
        finding.call.arguments,
        result=None if finding.refusal else finding.result,
        error=finding.refusal or "",
        id="call-1",
        started_at=began + step.start,
        duration=step.duration,
    )


def _spans(answer: Answer, began: float) -> list[Span]:
    return [
        Span(step.name, step.name, started_at=began + step.start, duration=step.duration, attributes=step.attributes)
        for step in answer.steps
    ]


if __name__ == "__main__":
    serve(support_desk)
