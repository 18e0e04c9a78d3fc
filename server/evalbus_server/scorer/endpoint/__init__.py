"""Models behind an OpenAI-compatible endpoint: asked for replies and for embeddings, never retried here.

`openai` is imported when an endpoint is set up, so that nobody pays for it who asks no model.
"""

from evalbus_server.scorer.endpoint.batching import Embedder
from evalbus_server.scorer.endpoint.calls import Endpoint, Meter, Question, Reply, connect
from evalbus_server.scorer.endpoint.reach import Prices, Reach

__all__ = ["Embedder", "Endpoint", "Meter", "Prices", "Question", "Reach", "Reply", "connect"]
