"""The errors of this package.

EvalbusError
├── ContractBroken      a message does not keep to the contract
├── SettingsInvalid     settings do not fit a plugin's schema
├── PluginInvalid       a function cannot be a plugin
├── TrialFailed         raised by plugin code: this one trial could not be done
│   ├── ToolMockFailed  no tool mock fits a call (in _tools)
│   └── ToolFailed      a tool mock is an error (in _tools)
├── NotScorable         raised by a scorer's code: it does not apply to this output
└── CallFailed          a server could not do what a client asked
"""

from __future__ import annotations

from evalbus._failure import Failure, FailureCategory


class EvalbusError(Exception):
    """Everything that this package raises on purpose."""


class ContractBroken(EvalbusError):
    """A message does not keep to the contract; the text quotes the fault."""


class SettingsInvalid(EvalbusError):
    """Settings do not fit a plugin's schema."""

    def __init__(self, message: str, field: str = "settings") -> None:
        """Say what is wrong, and with which field."""
        super().__init__(message)
        self.field = field


class PluginInvalid(EvalbusError):
    """A function cannot be a plugin; the text says what to change."""


class TrialFailed(EvalbusError):
    """Raised by plugin code: this one trial could not be done, for this reason.

    Any other exception of plugin code becomes a failure INTERNAL.
    """

    def __init__(
        self,
        message: str,
        category: FailureCategory = FailureCategory.INTERNAL,
        *,
        reason: str = "",
        retryable: bool | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Say what happened; *retry_after* is in seconds."""
        super().__init__(message)
        self.failure = Failure(category, message, reason, retryable=retryable, retry_after=retry_after)

    @classmethod
    def rate_limited(cls, message: str = "rate limited", *, retry_after: float | None = None) -> TrialFailed:
        """Something behind the plugin asks for fewer calls; the server waits at least *retry_after* seconds."""
        return cls(message, FailureCategory.RATE_LIMITED, retry_after=retry_after)

    @classmethod
    def unavailable(cls, message: str) -> TrialFailed:
        """Something behind the plugin is not there now; the server tries again."""
        return cls(message, FailureCategory.UNAVAILABLE)

    @classmethod
    def refused(cls, message: str) -> TrialFailed:
        """The plugin will not do it; the server does not try again."""
        return cls(message, FailureCategory.REFUSED)

    @classmethod
    def invalid(cls, message: str) -> TrialFailed:
        """The input is not acceptable; the server does not try again."""
        return cls(message, FailureCategory.INVALID)


class NotScorable(EvalbusError):
    """Raised by a scorer's code, however deep: it does not apply to this output, and all its scores are SKIPPED.

    The text is the explanation. A function that returns `Score.skipped` says the same.
    """


class CallFailed(EvalbusError):
    """A server could not do what a client asked."""

    def __init__(self, reason: str, message: str, code: str = "") -> None:
        """*reason* is a constant for programs, *code* the name of the gRPC status."""
        super().__init__(message)
        self.reason = reason
        self.code = code
