"""Captured traffic of chat completions: what was asked becomes an item, and what was answered its output.

The forms that gateways and batch jobs write: `request` and `response` side by side, the `body` of a batch request
(joined to its `response`), or a conversation alone in `messages`, whose last word is the assistant's.
"""

from __future__ import annotations

from evalbus import NULL, Value
from evalbus_server.dataset.cells import cell_of, elements, members, object_of
from evalbus_server.dataset.refusal import RowRefused

Cells = dict[str, Value]

_COUNTS = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}


def chat_completions(cells: Cells) -> Cells:
    """A request with its response, as captured; see the module."""
    made = dict(cells)
    request = _inner(made, "request") or _inner(made, "body")
    request = _inner(request, "body") or request
    response = _inner(made, "response")
    response = _inner(response, "body") or response
    if not request and "messages" in made:
        request = {"messages": made.pop("messages")}
    messages = request.pop("messages", None)
    if messages is None or messages.kind != "json" or not messages.text.startswith("["):
        raise RowRefused("no_input", "no messages: a row is a request with its response, or has messages")
    conversation = [_message(raw) for raw in elements(messages.text)]
    answered = _answered(response)
    if not answered and conversation and conversation[-1].get("role") == Value("assistant"):
        answered = _said(conversation.pop())
    said = [
        message["content"] for message in conversation if message.get("role") == Value("user") if "content" in message
    ]
    if not said:
        raise RowRefused("no_input", "no message is the user's")
    id = made.pop("custom_id", None) or made.pop("id", None) or response.pop("id", None)
    made |= {"input": said[-1], "messages": cell_of(f"[{','.join(map(object_of, conversation))}]")}
    made |= {key: value for key, value in (("id", id), ("output", answered and cell_of(object_of(answered)))) if value}
    made |= {name: cell_of(object_of(rest)) for name, rest in (("request", request), ("response", response)) if rest}
    return made


def _inner(cells: Cells, key: str) -> Cells:
    """The members of an object under a key, which is taken out; nothing if there is none."""
    cell = cells.get(key)
    if cell is None or cell.kind != "json" or not cell.text.startswith("{"):
        return {}
    del cells[key]
    return {name: cell_of(raw) for name, raw in members(cell.text).items()}


def _message(raw: str) -> Cells:
    if not raw.startswith("{"):
        raise RowRefused("bad_field", "messages holds what is no object")
    parts = {key: cell_of(each) for key, each in members(raw).items()}
    if "role" not in parts:
        raise RowRefused("bad_field", "messages holds a message without a role")
    known = ("role", "content", "name", "tool_call_id", "tool_calls")
    kept = {key: parts[key] for key in known if key in parts and parts[key] != NULL}
    if "content" in kept:
        kept["content"] = _plain(kept["content"])
    return kept


def _plain(content: Value) -> Value:
    """Content as one text if it is parts of text alone."""
    parts = content.data if content.kind == "json" else None
    if not isinstance(parts, list) or not parts:
        return content
    texts = [each.get("text") if isinstance(each, dict) and each.get("type") == "text" else None for each in parts]
    if not all(isinstance(text, str) for text in texts):
        return content
    return Value("".join(text for text in texts if text))


def _answered(response: Cells) -> Cells:
    """The output in a response, whose choices and usage are taken out; nothing if it brings none."""
    choices = response.get("choices")
    if choices is None or choices.kind != "json" or not choices.text.startswith("["):
        return {}
    first = elements(choices.text)[:1]
    message = _inner({"choice": cell_of(first[0])}, "choice").get("message") if first else None
    if message is None or message.kind != "json":
        return {}
    del response["choices"]
    answered = _said(_message(message.text))
    usage = _inner(response, "usage")
    counts = {ours: usage[theirs] for theirs, ours in _COUNTS.items() if theirs in usage}
    cached = _inner(usage, "prompt_tokens_details").get("cached_tokens")
    if cached is not None:
        counts["cached_tokens"] = cached
    if counts:
        answered["usage"] = cell_of(object_of({**counts, "calls": Value("1", "json")}))
    return answered


def _said(message: Cells) -> Cells:
    """A message of the assistant as an output."""
    said: Cells = {"content": message.get("content", NULL)}
    if "tool_calls" in message:
        said["tool_calls"] = message["tool_calls"]
    return said
