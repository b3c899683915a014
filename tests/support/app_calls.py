"""Every command as a call of haytham.app, with the arguments that click read from its words."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import click

from haytham import Workspace
from haytham.app.settings import RunSettings
from haytham.app.workspace import UNFINISHED
from haytham.cli.context import TO_GO_BACK, AppContext
from haytham.cli.editor import open_editor
from haytham.errors import HaythamError, SnapshotNotFound
from support.cli_runner import environment, root
from support.effects import QUIET_ENVIRONMENT, record

WAITING = ("waiting",)


class Refused(Exception):
    """What the command line refuses by its words alone."""


def arguments(words):
    """Return what click reads from the words of a command; Refused if that is a mistake."""
    command = root.get_command(click.Context(root), words[0])
    parent = click.Context(root, obj=AppContext(), help_option_names=["-h", "--help"])
    try:
        context = command.make_context(words[0], words[1:], parent=parent)
        if isinstance(command, click.Group):
            _, inner, _ = command.resolve_command(context, words[1:])
            return inner.make_context(words[1], words[2:], parent=context).params | {"inner": words[1]}
    except click.ClickException as error:
        raise Refused(str(error)) from None
    return dict(context.params)


def app_effects(workspaces, scenario):
    """Do through haytham.app what the command of a scenario does; return its effects."""
    folder = workspaces.prepare(scenario.setup)
    known = environment(folder, **{**QUIET_ENVIRONMENT, **scenario.environment})

    def call():
        with patch.dict(os.environ, known, clear=True):
            try:
                given = arguments(scenario.words)
                CALLS[scenario.words[0]](Workspace("projects"), given | {"stdin": scenario.stdin})
            except (HaythamError, OSError, Refused, click.ClickException):
                if is_answered(scenario):
                    raise

    return record(folder, call, step=len(scenario.setup))


def is_answered(scenario):
    """Return whether the command of a scenario ends with an answer: it is done, waits, is rejected or paused."""
    code = scenario.golden.read_text(encoding="utf-8").partition("\nexit ")[2].partition("\n")[0]
    return code in ("0", "3", "4", "5")


# Running.


def settings_of(given, *, starts=False):
    """Return the settings that the options name, and for a start the environment."""
    model = given["model"] or (os.environ.get("HAYTHAM_MODEL") if starts else None) or None
    limits = {"max_cost": given["max_cost"], "max_tokens": given["max_tokens"]}
    found = RunSettings.of(model=model, record=given["record"], **limits)
    return RunSettings(found.model, found.limits, found.record, no_record=given["no_record"])


def run(workspace, given):
    """Start a session and run it."""
    settings, idea = settings_of(given, starts=True), given["idea"]
    if idea == "-":
        idea = given["stdin"]
    elif idea is not None and Path(idea).is_file():
        idea = Path(idea).read_text(encoding="utf-8")
    about = {name: given[name] for name in ("workflow", "mode", "name", "project", "user")}
    about |= {"model": settings.model, "record": settings.record, **settings.limits}
    session = workspace.start(idea, **about)
    session.run(by=given["user"], approve_all=given["yes"])


def resume(workspace, given):
    """Go on with a session, from a snapshot if one is named."""
    which, name, snapshot = given["which"], given["session_name"], None
    if which is not None and name is not None:
        session, snapshot = workspace.snapshot(which, name, among=TO_GO_BACK)
    else:
        session = workspace.session(which or name, among=UNFINISHED)
    text = given["stdin"] if given["wish"] == "-" else given["wish"]
    session.prepare(
        accept_workflow=given["accept_workflow"],
        keep_workflow=given["keep_workflow"],
        settings=settings_of(given),
        trust_code=given["trusting"],
    )
    session.resume(snapshot, text, by=given["user"], approve_all=given["yes"])


def retry(workspace, given):
    """Run a phase again."""
    session = workspace.session(given["session_name"], among=UNFINISHED)
    session.retry(given["phase"], anyway=given["anyway"], by=given["user"], settings=settings_of(given))


def config(workspace, given):
    """Look at settings."""
    workspace.settings(given["key"], session=given["session_name"])


def work(workspace, given):
    """Run what can go on."""
    workspace.work(once=given["once"], by=given["user"])


# Deciding.


def decided(name, *more):
    """Return the call of a decision."""

    def call(workspace, given):
        session = workspace.session(given["session_name"], among=WAITING)
        words = {"comment": given["message"], "by": given["user"], **{key: given[key] for key in more}}
        getattr(session, name)(given["phase"], **words)

    return call


def review(workspace, given):
    """Edit a phase, and take what was decided in the editor."""
    session = workspace.session(given["session_name"], among=WAITING)
    number = session.waiting_phase() if given["phase"] is None else given["phase"]
    session.edit(number, open_editor)
    session.bind_editor_decisions(by=given["user"])
    session.review(number)


def memory(workspace, given):
    """Look after notes."""
    notebook, which = workspace.memory(given["user"]), given.get("which")
    text = given["stdin"] if given.get("text") == "-" else given.get("text")
    calls = {
        "add": lambda: notebook.add(text, tags=given["tags"]),
        "search": lambda: notebook.search(" ".join(given["query"]), limit=given["limit"]),
        "list": notebook.list,
        "show": lambda: notebook.show(which),
        "edit": lambda: edit_note(workspace, notebook, which, text, given["tags"]),
        "delete": lambda: notebook.delete(which),
    }
    calls[given["inner"]]()


def edit_note(workspace, notebook, which, text, tags):
    """Change a note: by a text, by tags, or in an editor."""
    if text is None and not tags:
        notebook.edit(which, lambda key: open_editor(workspace.folder / key))
    else:
        notebook.update(which, text, tags=tags or None)


# Looking.


def show(workspace, given):
    """Read texts of a phase, now or in a snapshot."""
    if given["at"] is None:
        session = workspace.session(given["session_name"])
    else:
        session, snapshot = workspace.snapshot(given["at"], given["session_name"])
        session = session.at(snapshot)
    number = session.current_phase() if given["phase"] is None else given["phase"]
    session.texts(number, attempt=given["attempt"], tasks=given["task"])


def cost(workspace, given):
    """Read what was spent."""
    workspace.costs() if given["everywhere"] else workspace.session(given["session_name"]).cost()


def log(workspace, given):
    """Read the stored events."""
    found = workspace.session(given["session_name"]).log(given["kinds"], given["since"])
    found.read(None if given["everything"] else given["limit"])


def stats(workspace, given):
    """Read the figures of all sessions, of a project or of a session."""
    workspace.statistics(given["which"])


def agents(workspace, given):
    """List agents."""
    if given["workflow"] is None and workspace.folders():
        workspace.session(given["session_name"]).agents()
    else:
        workspace.agents(given["workflow"])


def validate(workspace, given):
    """Validate the workspace, or what paths name."""
    for path in given["paths"]:
        workspace.validate_path(path, lambda base, key: f"{base}/{key}")
    if not given["paths"]:
        workspace.validate()


def doctor(workspace, given):
    """Repair sessions."""
    facts = {name: given[name] for name in ("user", "mode", "workflow")}
    for pair in workspace.folders(given["session_name"]):
        workspace.open(*pair).repair(**facts)


# Snapshots.


def on_snapshot(name):
    """Return the call of a method of the history with a snapshot."""

    def call(workspace, given):
        session, snapshot = workspace.snapshot(given["which"], given["session_name"], among=UNFINISHED)
        getattr(session.history, name)(snapshot)

    return call


def checkpoints(workspace, given):
    """List snapshots."""
    history = workspace.history() if given["everywhere"] else workspace.session(given["session_name"]).history
    history.list()


def undo(workspace, given):
    """Withdraw the last decision of a person."""
    workspace.session(given["session_name"], among=TO_GO_BACK).undo(by=given["user"])


def snapshot(workspace, given):
    """Take a snapshot."""
    workspace.session(given["session_name"], among=TO_GO_BACK).history.take(given["kind"], given["label"])


def restore(workspace, given):
    """Restore a snapshot."""
    session, snapshot = workspace.snapshot(given["which"], given["session_name"], among=TO_GO_BACK)
    session.restore(snapshot)


def recover(workspace, given):
    """List recovery points, go back to one, or delete them."""
    recovery = workspace.session(given["session_name"], among=TO_GO_BACK).recovery
    if given["clear"]:
        recovery.clear()
    elif given["which"] is not None or given["latest"]:
        recovery.recover(given["which"])
    else:
        recovery.points()


def fork(workspace, given):
    """Start a session of its own."""
    about = {name: given[name] for name in ("name", "purpose", "model", "workflow")}
    if given["which"] is None:
        workspace.session(given["session_name"], among=UNFINISHED).fork(**about)
    else:
        session, point = workspace.snapshot(given["which"], given["session_name"], among=UNFINISHED)
        session.fork(point, **about)


def diff(workspace, given):
    """Compare snapshots."""
    try:
        session, first = workspace.snapshot(given["old"], given["session_name"])
    except SnapshotNotFound:
        session, first = workspace.session(given["session_name"]), workspace.session(given["old"])
    session.diff(first, given["new"])


def merge(workspace, given):
    """Take phases of another session."""
    source = workspace.session(given["other"])
    session = source.parent if given["session_name"] is None else workspace.session(given["session_name"])
    session.merge(source, given["phases"], prefer=given["prefer"])


def session(workspace, given):
    """Rename, archive or delete a session."""
    if given["session_name"] is None:
        raise Refused("say which session is meant")
    found = workspace.session(given["session_name"])
    calls = {
        "rename": lambda: found.set_name(given["name"]),
        "archive": lambda: found.archive(undo=given["undo"]),
        "delete": lambda: delete(found, given),
    }
    calls[given.get("inner", "delete")]()


def delete(found, given):
    """Delete a session, if that is confirmed."""
    if given["dry_run"] or given["yes"]:
        found.delete(dry_run=given["dry_run"])


def prune(workspace, given):
    """Delete snapshots that the rules do not keep."""
    everywhere, name = given["everywhere"], given["session_name"]
    history = workspace.history() if everywhere else workspace.session(name, among=UNFINISHED).history
    history.prune(dry_run=given["dry_run"], older_than=given["older_than"], kind=given["kind"])


def verify(workspace, given):
    """Check snapshots."""
    chosen = None if given["everywhere"] else workspace.session(given["session_name"])
    for session in [workspace.open(*pair) for pair in workspace.folders()] if chosen is None else [chosen]:
        session.history.verify()


CALLS = {
    "run": run,
    "resume": resume,
    "retry": retry,
    "work": work,
    "approve": decided("approve", "anyway"),
    "request-changes": decided("request_changes", "changes", "agents"),
    "reject": decided("reject"),
    "skip": decided("skip"),
    "undo": undo,
    "review": review,
    "memory": memory,
    "status": lambda workspace, given: workspace.session(given["session_name"]).status(),
    "graph": lambda workspace, given: workspace.graph(given["which"] or workspace.session(given["session_name"])),
    "list": lambda workspace, given: workspace.list(
        archived=None if given["everything"] else False,
        waiting=given["waiting"],
        waiting_for="ann" if given["mine"] else None,
        user=given["user"],
        status=given["status"],
        project=given["project"],
    ),
    "show": show,
    "config": config,
    "cost": cost,
    "log": log,
    "stats": stats,
    "agents": agents,
    "prompt": lambda workspace, given: workspace.session(given["session_name"]).preview_prompts(
        given["phase"], given["agent"]
    ),
    "validate": validate,
    "doctor": doctor,
    "init": lambda workspace, given: workspace.copy_workflow(
        given["folder"], template=given["template"], reviewers=given["reviewers"]
    ),
    "checkpoints": checkpoints,
    "snapshots": checkpoints,
    "list-checkpoints": checkpoints,
    "snapshot": snapshot,
    "restore": restore,
    "recover": recover,
    "fork": fork,
    "diff": diff,
    "merge": merge,
    "discard": session,
    "session": session,
    "pin": on_snapshot("pin"),
    "unpin": on_snapshot("unpin"),
    "delete": on_snapshot("delete"),
    "prune": prune,
    "verify": verify,
}
