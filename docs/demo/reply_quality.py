"""The remote scorer of the demo: whether a reply covers the reference, is grounded, and has manners.

It needs only the SDK and runs in a process of its own; how a reply is judged is in `reply_judge.py`.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from reply_judge import Judgement, article_texts, covers, grounded, manners

from evalbus import Item, Need, Output, Score, ScoreDeclaration, TrialFailed, scorer, serve

HERE = Path(__file__).parent
SCORES = (
    ScoreDeclaration("covers", description="how much of the reference is in the reply"),
    ScoreDeclaration("grounded", description="the share of the reply's figures that have a source"),
    ScoreDeclaration("manners", description="the share of a few plain rules that hold"),
)


@dataclass(frozen=True)
class OnFile:
    """What the shop has on file, as far as a judge needs it."""

    articles: dict[str, str]
    orders: tuple[str, ...]


def open_files() -> OnFile:
    """Read the knowledge base and the numbers of the orders, once a run."""
    with (HERE / "knowledge.jsonl").open(encoding="utf-8") as lines:
        articles = article_texts(lines)
    orders = json.loads((HERE / "orders.json").read_text(encoding="utf-8"))["orders"]
    return OnFile(articles, tuple(order["order_id"] for order in orders))


@scorer(
    "reply-quality",
    version="1.0.0",
    scores=SCORES,
    needs=[Need.EXPECTED],
    deterministic=True,
    setup=open_files,
    mode="inline",
)
def reply_quality(item: Item, output: Output, state: OnFile) -> list[Score]:
    """Judges a reply by what can be checked in it."""
    assert item.expected is not None  # it is among the needs, so the server has seen to it
    if output.content is None:
        raise TrialFailed.invalid("the output has no content to judge")
    content = output.content.data
    reply, message = content["reply"], item.input.text
    return [
        _score("covers", covers(reply, item.expected.data["reply"])),
        _score("grounded", grounded(reply, [message, *_sources(output, content["articles"], state)])),
        _score("manners", manners(reply, message, upset="angry" in item.tags, orders=state.orders)),
    ]


def _sources(output: Output, articles: list[str], on_file: OnFile) -> list[str]:
    """What a figure of the reply may come from, besides the message: the tools and the articles that were used."""
    told = [
        text
        for call in output.tool_calls
        for text in (call.arguments_json, call.error, "" if call.result is None else call.result.text)
    ]
    return told + [on_file.articles[article] for article in articles]


def _score(name: str, judgement: Judgement) -> Score:
    return Score.scored(judgement.value, judgement.explanation, name=name)


if __name__ == "__main__":
    serve(reply_quality)
