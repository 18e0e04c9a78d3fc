"""An OpenAI-compatible endpoint for tests: a real HTTP server in a thread, which says what a test has it say.

with MockEndpoint(lambda call: '{"verdict": "yes"}') as endpoint:
    ...  # endpoint.base_url; endpoint.calls holds what was asked
"""

from __future__ import annotations

import json
import math
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, TypeAlias

KEY = "sk-mock-0123456789"
DIMENSIONS = 64


@dataclass(frozen=True)
class Call:
    """What was asked."""

    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def text(self) -> str:
        """All messages, one below the other."""
        return "\n".join(str(message["content"]) for message in self.body["messages"])

    @property
    def form(self) -> str:
        """In which form the reply is wanted."""
        return str(self.body.get("response_format", {}).get("type", "text"))


@dataclass(frozen=True)
class Status:
    """A reply that is an error, or anything else that is not a completion."""

    status: int
    body: Any = None
    """JSON, or bytes as they are."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Says:
    """A completion."""

    text: str | None
    """None: no content at all."""
    refusal: str | None = None
    finish_reason: str = "stop"
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    )


class Hang:
    """No reply at all, until the endpoint is closed or the caller has gone."""


class Drop:
    """The connection is closed without a reply."""


Answer: TypeAlias = "str | Mapping[str, Any] | Says | Status | Hang | Drop"
"""A text is what the model says; a mapping the same as JSON, or the arguments of the tool that has to be called."""
Script: TypeAlias = "Callable[[Call], Answer] | Iterable[Answer]"


class MockEndpoint:
    """The endpoint, from `with` on. Other than /chat/completions, it does /embeddings: words in, counts of them out."""

    def __init__(self, script: Script = (), *, forms: Iterable[str] = ("json_schema", "json_object", "text")) -> None:
        """*script* says each reply, or is a list of them, in order; other *forms* of replies are refused as unknown."""
        self._script = script if callable(script) else iter(script)
        self.forms = frozenset(forms)
        self.calls: list[Call] = []
        self.left = threading.Event()
        """Set once a caller has left while it hung."""
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"mock": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def base_url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def answer(self, call: Call) -> Answer:
        """What the script says."""
        with self._lock:
            self.calls.append(call)
            if call.path.endswith("/embeddings"):
                return Status(200, embeddings(call.body))
            if call.form not in self.forms:
                message = f"response_format {call.form!r} is not supported"
                return Status(400, {"error": {"message": message, "type": "invalid_request_error", "code": None}})
            if callable(self._script):
                return self._script(call)
            return next(self._script, Status(500, {"error": {"message": "the script is over"}}))

    def hang(self, gone: Callable[[], bool]) -> None:
        """Wait until nobody waits any more."""
        while not self._closing.wait(0.02):
            if gone():
                self.left.set()
                return


def embeddings(body: Any) -> dict[str, Any]:
    """Vectors of length 1 that count words: texts are near each other that share words."""
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    rows = [{"object": "embedding", "index": place, "embedding": _vector(text)} for place, text in enumerate(texts)]
    tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": body["model"], "data": rows, "usage": usage}


def _vector(text: str) -> list[float]:
    counts = [0.0] * DIMENSIONS
    for word in text.lower().split():
        counts[zlib.crc32(word.encode()) % DIMENSIONS] += 1.0
    length = math.sqrt(sum(count * count for count in counts)) or 1.0
    return [count / length for count in counts]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512


class _Handler(BaseHTTPRequestHandler):
    mock: MockEndpoint
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        call = Call(self.path, {name.lower(): value for name, value in self.headers.items()}, json.loads(body))
        answer = self.mock.answer(call)
        if isinstance(answer, Hang):
            self.connection.setblocking(False)
            self.mock.hang(self._gone)
            self.close_connection = True
        elif isinstance(answer, Drop):
            self.close_connection = True
        elif isinstance(answer, Status):
            self._send(answer)
        else:
            self._send(Status(200, _completion(call, answer)))

    def _gone(self) -> bool:
        try:
            return self.connection.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _send(self, answer: Status) -> None:
        raw = isinstance(answer.body, bytes)
        data = answer.body if raw else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("content-type", "text/html" if raw else "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _completion(call: Call, answer: str | Mapping[str, Any] | Says) -> dict[str, Any]:
    tool = _wanted_tool(call.body)
    if isinstance(answer, Mapping) and tool is not None:
        function = {"name": tool, "arguments": json.dumps(answer)}
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call-1", "type": "function", "function": function}],
        }
        said = Says(None, finish_reason="tool_calls")
    else:
        said = answer if isinstance(answer, Says) else Says(answer if isinstance(answer, str) else json.dumps(answer))
        message = {"role": "assistant", "content": said.text, "refusal": said.refusal}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": f"{call.body['model']}-2026",
        "system_fingerprint": "fp_1",
        "choices": [{"index": 0, "message": message, "finish_reason": said.finish_reason, "logprobs": None}],
        **({} if said.usage is None else {"usage": said.usage}),
    }


def _wanted_tool(body: Mapping[str, Any]) -> str | None:
    """The tool that the caller wants called: the one that it names, else its only one."""
    tools = body.get("tools") or []
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        return str(choice["function"]["name"])
    return str(tools[0]["function"]["name"]) if tools and choice != "none" else None
