"""`agents` and `prompt`: who would be asked, and what, to the letter. They write nothing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import PHASE, AppContext, UsageError, echo, sanitize
from haytham.cli.options import default_model, session_option

if TYPE_CHECKING:
    from haytham.app.agents import AgentList, AgentListing, PromptPreview

Row = dict[str, Any]
_SHORT = 12


@click.command
@session_option(argument=True)
@click.option("--workflow", help="The agents of a workflow: a name, a folder or a workflow.yaml.")
@click.pass_obj
def agents(context: AppContext, /, session_name: str | None, workflow: str | None) -> None:
    r"""List agents, and which model would answer for each.

    Those of a session; of a workflow, where one is named; of the built-in one, where there is no session.

    \b
    Examples:
      haytham agents
      haytham agents --workflow my_workflow --json
    """
    if workflow is not None and session_name is not None:
        raise UsageError("say whose agents are meant: those of a session or --workflow, not both")
    if workflow is None and (session_name is not None or context.workspace.folders()):
        session = context.workspace.session(session_name)
        listing, ids = session.agents(), {"project": session.project_id, "session": session.session_id}
        _answer(context, ids, f"session {session.id}, workflow {listing.workflow}", listing)
    else:
        listing = context.workspace.agents(workflow, model=default_model())
        _answer(context, {"project": None, "session": None}, f"workflow {listing.workflow}", listing)


def _answer(context: AppContext, ids: Row, head: str, listing: AgentList) -> None:
    rows, lines = [_row(agent) for agent in listing.agents], [head]
    facts = {**ids, "workflow": listing.workflow, "origin": listing.origin}
    for at, row in enumerate(rows):
        if at == 0 or rows[at - 1]["phase"] != row["phase"]:
            lines += ["", f"phase {row['phase']}, {row['phase_name']}"]
        lines += _lines(row)
    context.output("agents", {**facts, "agents": rows}, sanitize("\n".join(lines)))


def _lines(row: Row) -> list[str]:
    """Return an agent in a few lines: its description, models, contract, tools and file."""
    about = f": {' '.join(row['description'].split())}" if row["description"] else ""
    fields = [("model", _model_words(row)), ("contract", row["contract"]), ("tools", ", ".join(row["tools"]))]
    fields += [("file", row["file"])]
    return [f"  {row['agent']}{about}", *(f"    {name:<8}  {value}" for name, value in fields if value)]


def _model_words(row: Row) -> str:
    """Return the models in the order they are tried."""
    if row["replayed"]:
        return f"{row['models'][0]}, which answers for all"
    models = [model + (" (the default)" if row["inherits"][at] else "") for at, model in enumerate(row["models"])]
    refused = "" if row["trusted"] else "; it runs code, and is not trusted here: haytham resume --trust"
    return ", else ".join(models) + refused


def _row(agent: AgentListing) -> Row:
    row = {**asdict(agent), "models": list(agent.models), "inherits": list(agent.inherits), "tools": list(agent.tools)}
    return {**{name: value for name, value in row.items() if name != "name"}, "file": _file(agent)}


def _file(agent: AgentListing) -> str:
    """Return the file of an agent where it can be edited: in the folder that the workflow comes from."""
    if agent.file is None:
        return f"built in: {agent.name}"
    context = Path.cwd()
    return str(agent.file.relative_to(context) if agent.file.is_relative_to(context) else agent.file)


@click.command
@click.argument("phase", type=PHASE)
@click.argument("agent", required=False)
@session_option(argument=False)
@click.pass_obj
def prompt(context: AppContext, /, phase: int, agent: str | None, session_name: str | None) -> None:
    r"""Show the exact text that an agent would get now.

    On standard error stands what it is made of: each part with its file and the start of its digest. `haytham show N
    --task` shows what was asked before.

    \b
    Examples:
      haytham prompt 1
      haytham prompt 2 market_intelligence > prompt.md
    """
    session = context.workspace.session(session_name)
    previews = session.preview_prompts(phase, agent)
    ids = {"project": session.project_id, "session": session.session_id, "phase": phase}
    context.output("prompt", {**ids, "prompts": [_facts(preview) for preview in previews]}, _texts(previews))
    if not context.options.as_json and not context.options.quiet:
        for preview in previews:
            echo("\n".join(_about(preview)), err=True)


def _facts(question: PromptPreview) -> Row:
    task = question.task
    parts = [{"part": part.name, "file": part.file, "digest": part.digest} for part in question.parts]
    about = {"agent": task.agent, "attempt": task.attempt, "digest": task.digest}
    return {**about, "prompt": task.prompt, "parts": parts, "notes": list(question.notes)}


def _texts(previews: list[PromptPreview]) -> str:
    """Return one prompt as it is, or several, each below a line with its agent."""
    if len(previews) == 1:
        return sanitize(previews[0].task.prompt).removesuffix("\n")
    return "\n\n".join(f"--- {preview.task.agent}\n\n{sanitize(preview.task.prompt).rstrip()}" for preview in previews)


def _about(question: PromptPreview) -> list[str]:
    """Return the parts of a prompt, a line each, and notes about it."""
    width = max(len(part.name) for part in question.parts)
    digests = [part.digest.removeprefix("sha256:")[:_SHORT] for part in question.parts]
    rows = zip(question.parts, digests, strict=True)
    lines = [f"  {part.name:<{width}}  {digest}  {part.file}" for part, digest in rows]
    prompt_text = question.task.prompt
    hidden = len(prompt_text) - len(sanitize(prompt_text))
    taken_out = [f"{hidden} control characters are left out here; --json has them"] if hidden else []
    notes = [f"  {note}" for note in (*question.notes, *taken_out)]
    return [f"what {question.task.agent} is asked is made of:", *lines, *notes]
