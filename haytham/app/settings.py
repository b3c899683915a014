"""What holds for a session until it is changed: its user, model, limits and the folder for recordings.

Also who is acting, by the environment of this process.
"""

from __future__ import annotations

import getpass
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham.agents.registry import check_form, find_fault, load_agent, runs_code
from haytham.app import trust
from haytham.config.settings import MODEL, check_key, keys_below, setting_keys
from haytham.errors import AgentError, InvalidArgument, InvalidDocument, InvalidRequest, Problem
from haytham.redact import environment_secrets
from haytham.text import text_digest
from haytham.usage import format_usd_exact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haytham.config.settings import Setting, Settings
    from haytham.engine.invoke import RunOptions
    from haytham.session.session import SessionDocuments

log = logging.getLogger(__name__)

REPLAY = "replay:"
USER_VARIABLE = "HAYTHAM_USER"
TRACING_VARIABLE = "HAYTHAM_OTEL"
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})
_LARGEST = 10**12  # dollars that a manifest can hold


# Who is acting.


def current_user(user: str | None, documents: SessionDocuments | None = None) -> str:
    """Return who is acting: as given, HAYTHAM_USER, the session's user if it is the same person, git's, the login."""
    name = user or os.environ.get(USER_VARIABLE) or _session_user(documents) or _local_name()
    if not name:
        raise InvalidRequest(f"nothing says who you are; say it with --user NAME or {USER_VARIABLE}")
    return name


def local_identity() -> str:
    """Return the digest of this machine's name for the person: a manifest tells by it who is the session's user."""
    return text_digest(_local_name())


def _session_user(documents: SessionDocuments | None) -> str:
    """Return the session's user if this machine calls the person what it called them at the start."""
    manifest = None if documents is None else documents.read().manifest.value
    return manifest.user_id if manifest is not None and manifest.identity == local_identity() else ""


def _local_name() -> str:
    return _git_email() or _login_name()


def _git_email() -> str:
    import subprocess  # noqa: PLC0415 - for commands that change something

    try:
        done = subprocess.run(["git", "config", "user.email"], capture_output=True, encoding="utf-8", check=False)  # noqa: S607
    except (OSError, ValueError):
        return ""
    return done.stdout.strip()


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in a container
        return ""


# Whether spans are made.


def is_traced() -> bool:
    """Return whether the environment asks for spans of OpenTelemetry; InvalidRequest for a value that says neither."""
    value = os.environ.get(TRACING_VARIABLE, "").strip().lower()
    if value not in _YES | _NO:
        raise InvalidRequest(f"{TRACING_VARIABLE} is {value!r}; allowed: 1 or 0")
    return value in _YES


# How agents are called.


def known_secrets() -> tuple[str, ...]:
    """Return the values of secrets in the environment, which no file may hold."""
    return environment_secrets(os.environ)


def check_model(model: str | None) -> str | None:
    """Raise InvalidRequest for a model that a person named and that does not exist.

    Modules of one that runs code may lie in the working folder; for any other, nothing is imported from there.
    """
    if model is None:
        return None
    if runs_code(model):
        trust.add_cwd_to_path()
    try:
        load_agent(model)
    except (AgentError, InvalidArgument) as error:
        raise InvalidRequest(str(error)) from None
    return model


def check_settings(settings: Settings) -> None:
    """Raise an error of its place for a model that does not exist, which the environment or haytham.toml names.

    The model of the environment is loaded; that of haytham.toml, which may come from elsewhere, is only looked up.
    """
    setting = settings.get(MODEL)
    if setting.source == "environment":
        _check_variable(setting)
    elif setting.source == "workspace" and setting.value is not None:
        fault = _model_fault(setting.value)
        if fault is not None:
            file, _, line = setting.place.partition(":")
            raise InvalidDocument([Problem(fault, int(line), file=file)])


def _model_fault(model: str) -> str | None:
    """Return why a model cannot answer here, or None; none of its code is run."""
    try:
        check_form(model)
    except InvalidArgument as error:
        return str(error)
    fault = find_fault(model)
    return None if fault is None else f"model: found {model!r}; {fault}"


def _check_variable(setting: Setting) -> None:
    try:
        check_model(setting.value)
    except InvalidRequest as error:
        raise InvalidRequest(f"{setting.place} names what cannot be used: {error}") from None


def list_settings(settings: Settings, key: str | None = None) -> tuple[Setting, ...]:
    """Return all settings, those of a group, or one; InvalidArgument if there is none of that name."""
    keys = setting_keys() if key is None else keys_below(key)
    if key is not None and not keys:
        check_key(key)
    return tuple(settings.get(name) for name in keys)


@dataclass(frozen=True)
class RunSettings:
    """What a caller sets for a session: model, limits, recording. All but `max_output_tokens` hold until changed."""

    model: str | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    record: Path | None = None
    max_output_tokens: int | None = None
    no_record: bool = False

    @classmethod
    def of(
        cls,
        *,
        model: str | None = None,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        record: str | os.PathLike[str] | None = None,
    ) -> RunSettings:
        """Return settings of plain values; InvalidArgument or InvalidRequest for one that cannot be used."""
        given = {"max_cost": max_cost, "max_tokens": max_tokens}
        limits = {name: value for name, value in given.items() if value is not None}
        for name, value in limits.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST:
                raise InvalidArgument(name, value, "a number, 0 or more")
        if max_tokens is not None and not isinstance(max_tokens, int):
            raise InvalidArgument("max_tokens", max_tokens, "a whole number, 0 or more")
        return cls(check_model(model), limits, None if record is None else Path(record))

    @property
    def is_replay(self) -> bool:
        """Return whether recorded replies answer for all agents."""
        return (self.model or "").startswith(REPLAY)

    @property
    def recording(self) -> dict[str, str | None]:
        """Return the folder for recordings, None to stop recording; empty where nothing is said of it."""
        if self.record is None:
            return {"record": None} if self.no_record else {}
        return {"record": str(self.record)}

    @property
    def as_manifest(self) -> dict[str, float | str | None]:
        """Return limits and folder as a manifest stores them: money as text, which no formatter changes."""
        limits = {name: format_usd_exact(value) if name == "max_cost" else value for name, value in self.limits.items()}
        return {**limits, **self.recording}

    def store(self, documents: SessionDocuments) -> None:
        """Store limits and the folder for recordings with a session; naming a folder allows writing there.

        What is set here counts before the environment for as long as `documents` are used.
        """
        named = [MODEL] if self.model is not None else []
        documents.flags |= {*named, *(f"budget.{name}" for name in self.limits)}
        if self.as_manifest:
            documents.update_manifest(self.as_manifest)
        if self.record is not None:
            try:
                trust.allow_recording(self.record)
            except OSError as error:
                log.warning("replies are recorded in %s by this command alone: %s", self.record, error)

    def save(self, documents: SessionDocuments) -> None:
        """Store all of it with a session, and emit what changed."""
        model = {} if self.model is None else {"model": self.model}
        changes: dict[str, Any] = {**self.limits, **model, **self.recording}
        self.store(documents)
        if self.model is not None:
            set_model(documents, self.model)
        if changes:
            documents.events.emit("settings_changed", **changes)
        _warn_of_recording(documents)

    def run_options(self, documents: SessionDocuments) -> RunOptions:
        """Return how a run calls the agents of a session; a replay answers for all of them."""
        from haytham.agents.replay import Recorder  # noqa: PLC0415 - only where something runs
        from haytham.engine.invoke import RunOptions  # noqa: PLC0415 - brings asyncio

        model = documents.read().settings.model or ""
        folder, secrets = self.record or _allowed_folder(documents), known_secrets()
        return RunOptions(
            model=model if model.startswith(REPLAY) else None,
            recorder=None if folder is None else Recorder(folder, secrets=secrets),
            max_output_tokens=self.max_output_tokens,
            secrets=secrets,
        )


def set_model(documents: SessionDocuments, model: str) -> None:
    """Change a session's model. Whoever names a model trusts it, but not the code of a workflow from elsewhere."""
    is_vouched_for = trust.may_name_model(documents)
    documents.update_manifest({"model": model})
    if is_vouched_for:
        trust.trust(documents)


def _record_folder(documents: SessionDocuments) -> Path | None:
    folder = documents.read().manifest.value.record
    return None if folder is None else Path(folder)


def _allowed_folder(documents: SessionDocuments) -> Path | None:
    """Return the session's folder for recordings if a person named it on this machine."""
    folder = _record_folder(documents)
    return folder if folder is not None and trust.may_record(folder) else None


def _warn_of_recording(documents: SessionDocuments) -> None:
    """Warn of a folder that a session names and nobody on this machine has: nothing is written there."""
    folder = _record_folder(documents)
    if folder is not None and _allowed_folder(documents) is None:
        log.warning(
            "replies are not recorded: the session names the folder %r, and you did not; to record there: --record %s",
            str(folder),
            folder,
        )
