"""`agents` and `prompt`: who would be asked, and what, to the letter. They write nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from haytham.cli.context import PHASE, AppContext, UsageError, echo, sanitize
from haytham.cli.options import REPLAY, default_model, session_option

if TYPE_CHECKING:
    from haytham.cli.asking import PromptPreview
    from haytham.config.agent_spec import AgentSpec
    from haytham.config.workflow import Phase, WorkflowFiles
    from haytham.session import Session

Row = dict[str, Any]
_BUILT_IN = "idea_validation"
_SHORT = 12


@click.command
@session_option(argument=True)
@click.option("--workflow", help="The agents of a workflow: a name, a folder or a workflow.yaml.")
@click.pass_obj
def agents(here: AppContext, /, session_name: str | None, workflow: str | None) -> None:
    r"""List agents, and which model would answer for each.

    Those of a session; of a workflow, where one is named; of the built-in one, where there is no session.

    \b
    Examples:
      haytham agents
      haytham agents --workflow my_workflow --json
    """
    if workflow is not None and session_name is not None:
        raise UsageError("say whose agents are meant: those of a session or --workflow, not both")
    if workflow is None and (session_name is not None or here.folders(None)):
        _tell_of_session(here, here.resolve_session(session_name))
    else:
        _tell_of_workflow(here, workflow or _BUILT_IN)


def _tell_of_session(here: AppContext, session: Session) -> None:
    from haytham.cli.trust import may_run_code  # noqa: PLC0415

    reading = session.read()
    manifest, source = reading.manifest.value, reading.workflow_files()
    rows = _rows(reading.phases, source, manifest.get("model"), trusted=may_run_code(session))
    ids = {"project": session.project_id, "session": session.session_id}
    head = f"session {session.project_id}/{session.session_id}, workflow {manifest['workflow_type']}"
    _answer(here, {**ids, "workflow": manifest["workflow_type"], "origin": manifest["origin"]}, head, rows)


def _tell_of_workflow(here: AppContext, name: str) -> None:
    from haytham.config.workflow import load_workflow  # noqa: PLC0415

    source = load_workflow(name, Path())
    rows = _rows(source.workflow.phases, source, default_model(), trusted=True)
    facts = {"project": None, "session": None, "workflow": source.workflow.name, "origin": source.origin}
    _answer(here, facts, f"workflow {source.workflow.name}", rows)


def _answer(here: AppContext, facts: Row, head: str, rows: list[Row]) -> None:
    lines = [head]
    for at, row in enumerate(rows):
        if at == 0 or rows[at - 1]["phase"] != row["phase"]:
            lines += ["", f"phase {row['phase']}, {row['phase_name']}"]
        lines += _lines(row)
    here.output("agents", {**facts, "agents": rows}, sanitize("\n".join(lines)))


def _lines(row: Row) -> list[str]:
    """An agent in a few lines: what it is for, who answers, what is asked of the answer, and its file."""
    about = f": {' '.join(row['description'].split())}" if row["description"] else ""
    told = [("model", _model_words(row)), ("contract", row["contract"]), ("tools", ", ".join(row["tools"]))]
    told += [("file", row["file"])]
    return [f"  {row['agent']}{about}", *(f"    {name:<8}  {value}" for name, value in told if value)]


def _model_words(row: Row) -> str:
    """The models in the order they are tried."""
    if row["replayed"]:
        return f"{row['models'][0]}, which answers for all"
    said = [model + (" (the default)" if row["inherits"][at] else "") for at, model in enumerate(row["models"])]
    refused = "" if row["trusted"] else "; it runs code, and is not trusted here: haytham resume --trust"
    return ", else ".join(said) + refused


def _rows(phases: tuple[Phase, ...], source: WorkflowFiles, model: str | None, *, trusted: bool) -> list[Row]:
    from haytham.config.agent_spec import read_agent  # noqa: PLC0415
    from haytham.session.inputs import agent_texts  # noqa: PLC0415

    texts = agent_texts(source.files)
    specs = {name: read_agent(name, texts[name]) for phase in phases for name in phase.agents}
    return [_row(phase, specs[name], source, model, trusted=trusted) for phase in phases for name in phase.agents]


def _row(phase: Phase, spec: AgentSpec, source: WorkflowFiles, model: str | None, *, trusted: bool) -> Row:
    from haytham.agents.base import DEFAULT_MODEL, runs_code  # noqa: PLC0415
    from haytham.config.agent_spec import INHERIT  # noqa: PLC0415

    default = model or DEFAULT_MODEL
    replayed = default.startswith(REPLAY)
    own = (INHERIT,) if replayed else spec.models or (INHERIT,)
    models = dict.fromkeys(own)
    answering = {default if name == INHERIT else name: name == INHERIT for name in models}
    return {
        "phase": phase.number,
        "phase_name": phase.name,
        "agent": spec.name,
        "description": spec.description,
        "models": list(answering),
        "inherits": list(answering.values()),
        "replayed": replayed,
        "trusted": trusted or not any(map(runs_code, answering)),
        "contract": spec.contract,
        "tools": list(spec.tools),
        "file": _file(source, spec.name),
    }


def _file(source: WorkflowFiles, agent: str) -> str:
    """The file of an agent where it can be edited: in the folder that the workflow comes from."""
    from haytham.config.workflow import agent_file  # noqa: PLC0415

    origin = Path(source.origin)
    if not origin.is_absolute():
        return f"built in: {source.origin}/{agent_file(agent)}"
    path = origin / agent_file(agent)
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


@click.command
@click.argument("phase", type=PHASE)
@click.argument("agent", required=False)
@session_option(argument=False)
@click.pass_obj
def prompt(here: AppContext, /, phase: int, agent: str | None, session_name: str | None) -> None:
    r"""Show the exact text that an agent would get now.

    On standard error stands what it is made of: each part with its file and the start of its digest. `haytham show N
    --task` shows what was asked before.

    \b
    Examples:
      haytham prompt 1
      haytham prompt 2 market_intelligence > prompt.md
    """
    from haytham.cli.asking import preview_prompts  # noqa: PLC0415

    session = here.resolve_session(session_name)
    chosen = session.read().phase(phase)
    if agent is not None and agent not in chosen.agents:
        raise UsageError(
            f"phase {phase}, {chosen.name}, has no agent {agent!r}; name one of {', '.join(chosen.agents)}"
        )
    found = preview_prompts(here, session, phase, chosen.agents if agent is None else (agent,))
    ids = {"project": session.project_id, "session": session.session_id, "phase": phase}
    here.output("prompt", {**ids, "prompts": [_facts(one) for one in found]}, _texts(found))
    if not here.options.as_json and not here.options.quiet:
        for one in found:
            echo("\n".join(_about(one)), err=True)


def _facts(question: PromptPreview) -> Row:
    task = question.task
    parts = [{"part": part.name, "file": part.file, "digest": part.digest} for part in question.parts]
    about = {"agent": task.agent, "attempt": task.attempt, "digest": task.digest}
    return {**about, "prompt": task.prompt, "parts": parts, "notes": list(question.notes)}


def _texts(found: list[PromptPreview]) -> str:
    """One prompt as it is; several each under a line with its agent."""
    if len(found) == 1:
        return sanitize(found[0].task.prompt).removesuffix("\n")
    return "\n\n".join(f"--- {one.task.agent}\n\n{sanitize(one.task.prompt).rstrip()}" for one in found)


def _about(question: PromptPreview) -> list[str]:
    """What a prompt is made of, a line each, and what is to know about it."""
    width = max(len(part.name) for part in question.parts)
    digests = [part.digest.removeprefix("sha256:")[:_SHORT] for part in question.parts]
    told = zip(question.parts, digests, strict=True)
    lines = [f"  {part.name:<{width}}  {digest}  {part.file}" for part, digest in told]
    prompt_text = question.task.prompt
    hidden = len(prompt_text) - len(sanitize(prompt_text))
    taken_out = [f"{hidden} control characters are left out here; --json has them"] if hidden else []
    notes = [f"  {note}" for note in (*question.notes, *taken_out)]
    return [f"what {question.task.agent} is asked is made of:", *lines, *notes]
