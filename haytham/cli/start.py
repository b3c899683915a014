"""The start of a session: the idea as it was given, the workflow, the project, and what is checked before anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haytham.cli.context import AppContext, UsageError, current_user, local_identity
from haytham.cli.options import REPLAY
from haytham.errors import InvalidDocument, NotFound, conflict_problems
from haytham.text import conflict_lines

if TYPE_CHECKING:
    from haytham.cli.options import ModelOptions
    from haytham.config.workflow import WorkflowFiles
    from haytham.project.project_manager import ProjectManager
    from haytham.session import Session

_BUILT_IN = "idea_validation"
_USUAL_MODE = "mvp"
_FILE_ENDINGS = (".md", ".txt", ".markdown", ".rst")


def read_idea(given: str | None) -> str | None:
    """The idea: from standard input, a file, or as it stands; None where none was given."""
    if given is None:
        return None
    if not given.strip():
        raise UsageError("the idea is empty; say it in a sentence")
    if given == "-":
        return _decoded(sys.stdin.buffer.read(), "standard input")
    path = Path(given)
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError):  # too long for a name, or with a character that no name has
        return given
    if is_file:
        return _decoded(path.read_bytes(), given)
    if is_folder:
        raise UsageError(f"{given} is a folder; name a file, or say the idea in a sentence")
    if given.endswith(_FILE_ENDINGS) and not any(letter.isspace() for letter in given):
        raise UsageError(f"there is no file {given}; name one that is there, or say the idea in a sentence")
    return given


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{where} is not UTF-8 text; save the idea as UTF-8") from None


def start(here: AppContext, idea: str | None, given: dict[str, Any], asking: ModelOptions) -> Session:
    """Make a session, with its project where that is new; nothing is made of what cannot be used."""
    from haytham import clock  # noqa: PLC0415
    from haytham.cli.trust import trust  # noqa: PLC0415

    if idea is None and given["project"] is None:
        raise UsageError('there is no idea; say it in a sentence: haytham run "Lend rain barrels to gardens"')
    if idea is not None and not idea.strip():
        raise UsageError("the idea is empty; say it in a sentence")
    if idea is not None and conflict_lines(idea):
        raise InvalidDocument(conflict_problems(conflict_lines(idea), file="the idea"))
    source, user = _workflow(given["workflow"], asking), current_user(given["user"])
    mode = _mode(source, given["mode"])
    session = here.session(_project(here, idea, user, given), clock.new_id())
    session.create(user_id=user, source=source, mode=mode, model=asking.model)
    identity = {"identity": local_identity()} if given["user"] else {}
    _tell_start(session, user=user, mode=mode, source=source, asking=asking, **identity)
    if identity:
        session.update_manifest(identity)
    asking.store(session)
    if given["workflow"] or asking.model:  # who names it trusts it
        trust(session)
    return session


def _workflow(name: str | None, asking: ModelOptions) -> WorkflowFiles:
    """The workflow that is named, checked before anything is made; else the built-in one."""
    from haytham.config.workflow import load_workflow, shipped_workflow  # noqa: PLC0415

    if name is None:
        return shipped_workflow(_BUILT_IN)
    found = load_workflow(name, Path())
    check(found, replayed=(asking.model or "").startswith(REPLAY))
    return found


def check(source: WorkflowFiles, *, replayed: bool = False) -> None:
    """Refuse a workflow that could not run to its end; modules may lie in the folder one works in."""
    from haytham.cli.trust import add_cwd_to_path  # noqa: PLC0415
    from haytham.engine.preflight import check_workflow  # noqa: PLC0415

    add_cwd_to_path()
    check_workflow(source, replayed=replayed)


def _mode(source: WorkflowFiles, given: str | None) -> str:
    modes = source.workflow.modes
    mode = given or (_USUAL_MODE if _USUAL_MODE in modes else next(iter(modes)))
    source.workflow.mode_phases(mode)
    return mode


def _project(here: AppContext, idea: str | None, user: str, given: dict[str, Any]) -> str:
    """The project that is named, else a new one."""
    from haytham.config.workflow import shipped_workflow  # noqa: PLC0415
    from haytham.project.project_manager import ProjectManager, default_name  # noqa: PLC0415

    projects = ProjectManager(here.base)
    if idea is None or given["project"] is not None:
        return _known_project(projects, idea, given["project"])
    usual = given["mode"] if given["mode"] in shipped_workflow(_BUILT_IN).workflow.modes else _USUAL_MODE
    name = given["name"] or default_name(idea)
    return str(projects.create_project(user, idea, project_name=name, execution_mode=usual)["project_id"])


def _known_project(projects: ProjectManager, idea: str | None, project_id: str) -> str:
    try:
        there = projects.get_project_status(project_id)
    except NotFound:
        raise UsageError(f"there is no project {project_id!r}; leave --project out to start a new one") from None
    if idea is not None and there["startup_idea"].strip() != idea.strip():
        raise UsageError(
            f"project {project_id} has another idea; leave the idea out, or --project to start a new project"
        )
    return str(there["project_id"])


def _tell_start(
    session: Session, *, user: str, mode: str, source: WorkflowFiles, asking: ModelOptions, **identity: str
) -> None:
    """Keep, as an event, what the manifest is the home of: it can be rebuilt from that."""
    from haytham.events import Events  # noqa: PLC0415
    from haytham.session.paths import EVENTS  # noqa: PLC0415
    from haytham.session.repair import STARTED  # noqa: PLC0415

    facts: dict[str, Any] = {
        "user": user,
        "mode": mode,
        "workflow": source.digest,
        "origin": source.origin,
        "model": asking.model,
        **asking.limits,
        **asking.recording,
        **identity,
    }
    Events(session.store, session.prefix + EVENTS).emit(STARTED, **facts)
