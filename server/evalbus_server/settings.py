"""What the program is told from outside, read in one place and passed on as values: environment and configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from evalbus._adapted import adapter_command, is_adapted
from evalbus_server.api.listening import Listening
from evalbus_server.api.rules import Allowed, AllowedCommand
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.dataset_use import in_folder
from evalbus_server.model.environment import resolve_env
from evalbus_server.model.faults import invalid, kind_of
from evalbus_server.model.written import Duration, Many, Name, Text
from evalbus_server.runner.documents import read_document

DATABASE_VARIABLE = "EVALBUS_DB"
DATABASE = "evalbus.db"
TOKEN_VARIABLE = "EVALBUS_TOKEN"
LISTEN = "127.0.0.1:50051"


def database_path(given: Path | None, environ: Mapping[str, str]) -> Path:
    """The database: the one that was given, else that of $EVALBUS_DB, else `evalbus.db` where one stands."""
    return given or Path(environ.get(DATABASE_VARIABLE) or DATABASE)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CommandSettings(_Part):
    """A command that experiments of callers may have started, or a scorer of another library."""

    command: Annotated[Many[Text], Field(min_length=1)] | None = None
    """Program and arguments, exactly as experiments name them."""
    use: Name | None = None
    """A scorer of another library, as experiments name it."""
    python: Text = ""
    """The interpreter that they name beside it."""
    folder: Text = ""
    """Where it is started, relative to the configuration's folder; what an experiment says does not count."""
    env: Many[Name] = ()
    """Variables of its environment that experiments may set."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"command": value} if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.command is None) == (self.use is None):
            raise ValueError("give command, or use for a scorer of another library")
        if self.use is not None and not is_adapted(self.use):
            raise ValueError(f"{self.use!r} needs no process: builtin scorers are for everybody")
        if self.python and self.use is None:
            raise ValueError("python goes with use; leave it out")
        return self

    @property
    def argv(self) -> tuple[str, ...]:
        """What is started."""
        return adapter_command(self.use or "", self.python) if self.command is None else self.command


class TlsSettings(_Part):
    """The server's certificate; both are PEM files, relative to the configuration's folder."""

    certificate: Annotated[Text, Field(min_length=1)]
    key: Annotated[Text, Field(min_length=1)]


class LimitSettings(_Part):
    """Bounds on what callers may ask for, and on the end."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    """An experiment may ask for so many trials or score tasks at a time."""
    runs: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """So many runs may be open at once: QUEUED or RUNNING."""
    grace: Duration = 10.0
    """Trials in flight get so long when the server is asked to end."""


class Settings(_Part):
    """The configuration of a server."""

    listen: Text = LISTEN
    """`host:port` or `unix:/path`."""
    db: Text = ""
    """The database, relative to the configuration's folder; "": $EVALBUS_DB, else `evalbus.db`."""
    tls: TlsSettings | None = None
    tokens: Many[Text] = ()
    """Callers must show one of them; a value may be `${env:NAME}`. (): $EVALBUS_TOKEN, if it is set."""
    commands: Many[CommandSettings] = ()
    """What experiments of callers may have started."""
    env: Many[Name] = ()
    """Variables of the server's environment that experiments of callers may name as `${env:NAME}`."""
    limits: LimitSettings = Field(default_factory=LimitSettings)
    resume: bool = False
    """Runs that the end of a server has interrupted go on by themselves when it starts again."""

    @field_validator("tokens")
    @classmethod
    def _not_empty(cls, tokens: tuple[str, ...]) -> tuple[str, ...]:
        if not all(token.strip() for token in tokens):
            raise ValueError("an empty token lets everybody in; leave it out")
        return tokens

    @classmethod
    def parse(cls, document: object) -> Self:
        """Settings from plain data.

        Raises:
            Invalid: they do not fit the schema; one line, with the path of each fault.
        """
        if not isinstance(document, Mapping):
            raise Invalid(Reason.REQUEST_INVALID, f"the configuration must be a mapping, not {kind_of(document)}")
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise invalid(error, cls, Reason.REQUEST_INVALID) from None


def load_settings(path: str | os.PathLike[str]) -> Settings:
    """The settings of a YAML, JSON or TOML file.

    Raises:
        Invalid: the file cannot be read, or does not hold settings; one line, with the file and mostly the place.
    """
    document = read_document(path, Reason.REQUEST_INVALID)
    try:
        return Settings.parse(document.data)
    except Invalid as error:
        message = f"{path}: {document.told(error.field)}{error}"
        raise Invalid(error.reason, message, field=error.field) from None


class Serving:
    """Settings with everything resolved: files found, secrets read. Never printed or stored."""

    def __init__(self, settings: Settings, folder: Path, environ: Mapping[str, str]) -> None:
        """*folder* is that of the configuration file.

        Raises:
            Invalid: a token names a variable that is not set.
        """
        tls = settings.tls
        self.listening = Listening(
            address=settings.listen,
            tokens=_tokens(settings, environ),
            certificate=None if tls is None else in_folder(tls.certificate, str(folder)),
            key=None if tls is None else in_folder(tls.key, str(folder)),
        )
        self.allowed = Allowed(
            commands=tuple(
                AllowedCommand(each.argv, str(in_folder(each.folder, str(folder))), frozenset(each.env))
                for each in settings.commands
            ),
            environment=frozenset(settings.env),
            concurrency=settings.limits.concurrency,
        )
        self.db = in_folder(settings.db, str(folder)) if settings.db else database_path(None, environ)
        self.most_open = settings.limits.runs
        self.grace = settings.limits.grace
        self.resume = settings.resume


def _tokens(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    if not settings.tokens:
        token = environ.get(TOKEN_VARIABLE, "")
        if token and not token.strip():
            raise Invalid(
                Reason.REQUEST_INVALID, f"{TOKEN_VARIABLE} is blank; set a token, or unset it", field="tokens"
            )
        return (token,) if token else ()
    try:
        resolved: Any = resolve_env(settings.tokens, environ, "tokens")
    except Invalid as error:
        raise Invalid(Reason.REQUEST_INVALID, str(error), field=error.field) from None
    if not all(token.strip() for token in resolved):
        raise Invalid(Reason.REQUEST_INVALID, "tokens: an empty token lets everybody in", field="tokens")
    return tuple(resolved)
