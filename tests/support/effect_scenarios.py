"""The scenarios whose effects are held still: every command, with each kind of outcome it has."""

from __future__ import annotations

import sys
import textwrap

from click import Context

from support.cli_runner import root
from support.effects import Edit, Remove, Scenario, Write

BUILT_IN = "run 'Lend rain barrels to gardens' --no-input"
IDEA = "'Lend rain barrels' --name Rain"
SESSION = "projects/*/sessions/2*"
ONE = f"{SESSION}/phase_1_one/one.md"
TWO = f"{SESSION}/phase_2_two/two.md"
FEEDBACK = f"{SESSION}/phase_1_one/user_feedback.md"
AGENTS = '''
from haytham import Reply


def write(task):
    """Answer for nothing."""
    return f"# {task.agent}\\n\\nAttempt {task.attempt} of {task.agent}.\\n"


def cheap(task):
    """Answer for a quarter of a dollar."""
    return Reply(f"From {task.agent}.", model="m", input_tokens=3, output_tokens=4, cost=0.25)


def tell(task):
    """Tell a secret."""
    return "The password is correct-horse-battery.\\n"


def fail(task):
    """Fail."""
    raise ValueError("no such market")


def change_state(task):
    """Answer, and leave a value with the session."""
    return Reply("Leeds it is.", state={"memory": {"session": {"city": "Leeds"}}})
'''
CONTRACT = """
{
  "title": "gardens",
  "description": "Why gardens pay.",
  "x-contract": "gardens/1",
  "type": "object",
  "properties": {
    "why": {"type": "string", "minLength": 40, "x-location": "Why", "x-ask": "Why pay?", "x-test": "ask somebody."}
  },
  "required": ["why"]
}
"""
EDITOR = """
import sys
from pathlib import Path

for name, old, new in CHANGES:
    for path in [Path(word) for word in sys.argv if word.endswith(name)]:
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
sys.exit(CODE)
"""


# Workflows.


def agent(name, *front, body="Write about {{ phase }}: {{ idea }}"):
    """The file of an agent of the small workflow."""
    text = "\n".join(["---", f"name: {name}", *front, "---", body, ""])
    return Write(f"small/agents/{name}.md", text)


def workflow(*more, phases=None, front=()):
    """A small workflow: one, then two and three, then four; side by side if they are worksheets, which is the default.

    Programs and functions side by side would end in any order.
    """
    run = "sequential" if front else "parallel"
    usual = f"""
    - {{number: 1, name: One, slug: one, agents: [one]}}
    - {{number: 2, name: Two, slug: two, agents: [two, three], needs: [1], run: {run}}}
    - {{number: 3, name: Three, slug: three, agents: [four], needs: [2]}}
    """
    rows = textwrap.indent(textwrap.dedent(phases or usual).strip(), "  ")
    text = "\n".join(["name: small", "phases:", rows, "modes: {mvp: [1, 2, 3], short: [1]}", *more, ""])
    files = [agent(name, "haytham: {retries: 0}", *front) for name in ("one", "two", "three", "four")]
    return (Write("small/workflow.yaml", text), *files)


def coded(function, *more):
    """The small workflow with a function that answers for all its agents."""
    return (*workflow(*more, front=[f"model: python:mine:{function}"]), Write("mine.py", AGENTS))


def started(before=None, *options):
    """A session of a workflow that was run up to its first stop."""
    return (*(before or SMALL), " ".join(["run", IDEA, "--workflow small", *options]))


def editor(*changes, code=0):
    """The program that a person edits with: it replaces texts in the files it is given."""
    return Write("editor.py", f"CHANGES = {changes!r}\nCODE = {code}\n{EDITOR}")


TOML = 'model = "worksheet"\n[snapshots]\nauto = "every"\n[budget]\nmax_cost = 5\n'
NO_SNAPSHOTS = "checkpointing: {auto: 'off'}"
SMALL = workflow()
PLAIN = workflow(NO_SNAPSHOTS)
GATE_1 = started()
APPROVED_1 = (*GATE_1, "approve -m 'Go on, but name one city.'")
GATE_2 = (*APPROVED_1, "resume")
APPROVED_2 = (*GATE_2, "approve")
DONE = started(None, "--yes")
REJECTED = (*GATE_1, "reject -m 'Nobody would pay'")
CHANGES_2 = (*GATE_2, "request-changes -m 'Too broad' --change 'Name one city' --change 'Say who pays'")
CHANGES_OF_TWO = (*GATE_2, "request-changes --agent two --change 'Name one city'")
ATTEMPT_2 = (*CHANGES_2, "resume")
STALE_2 = (*GATE_2, Edit(ONE, "Lend rain barrels", "Lend water butts"))
STALE_3 = (*APPROVED_2, "resume", Edit(ONE, "Lend rain barrels", "Lend water butts"))
FAILED = (*coded("fail", NO_SNAPSHOTS), f"run {IDEA} --workflow small")
FAILED_WITH_SNAPSHOTS = (*coded("fail"), f"run {IDEA} --workflow small")
CITY_LOST = (*coded("change_state"), f"run {IDEA} --workflow small", "approve", "resume")
UNREVIEWED = """
    - {number: 1, name: One, slug: one, agents: [one], review: none}
    - {number: 2, name: Two, slug: two, agents: [two], needs: [1], review: none}
    - {number: 3, name: Three, slug: three, agents: [three], needs: [2]}
"""
DRIFTING = (*workflow("drift: {cycles: 1, action: pause}", phases=UNREVIEWED), f"run {IDEA} --workflow small")
PAUSED = (*coded("cheap"), f"run {IDEA} --workflow small --max-cost 0.3 --yes")
SPENT = (*coded("cheap"), f"run {IDEA} --workflow small --max-cost 3 --yes")
RECORDED = (*coded("cheap", NO_SNAPSHOTS), f"run {IDEA} --workflow small --yes --record said")
TYPED = (
    Edit(FEEDBACK, "- Approved: -", "- Approved: true"),
    Edit(FEEDBACK, "\n## Requested", "\nGo on.\n\n## Requested"),
)
WORKFLOW_CHANGED = (*GATE_1, Edit("small/workflow.yaml", "name: Three", "name: Third"))
BROKEN = (*GATE_2, Edit(TWO, "- Status: completed", "- Status: fine"))
CONFLICT = "<<<<<<< mine\nGardens\n=======\nParks\n>>>>>>> theirs\n"
TWO_PROJECTS = (*GATE_1, "run 'Lend ladders' --name Ladders --workflow small --user bob")
RESTORED = (*GATE_2, "restore 1")
FORK = (*GATE_2, "fork --name cheaper --purpose 'half the price'")
FORK_TWO = "projects/*/sessions/cheaper/phase_2_two/two.md"
FORK_CHANGED = (*FORK, Edit(FORK_TWO, "Lend rain barrels", "Lease rain barrels"))
BOTH_CHANGED = (*FORK_CHANGED, Edit(TWO, "Lend rain barrels", "Sell rain barrels"))
RENAMED = (*GATE_1, "session rename rain 'Half the price'")
ARCHIVED = (*FORK, "session archive rain/2")
MERGED_AGAIN = (*BOTH_CHANGED, "merge cheaper --phase 2 --ours", Edit(FORK_TWO, "## To answer", "## To tell"))
FORK_AHEAD = (*FORK, "approve -s cheaper", "resume cheaper")
LABELLED = (*GATE_2, "snapshot -m 'before the rewrite'")
ROUTINE = (
    *GATE_2,
    *(step for turn in "abc" for step in (Write(f"{SESSION}/evidence.md", f"{turn}\n"), "snapshot --kind routine")),
)
LOST = (
    *GATE_1,
    *(Remove(path) for path in (f"{SESSION}/session_manifest.md", f"{SESSION}/events.jsonl", "projects/*/history")),
)
ONE_OF_EACH = workflow("checkpointing: {retention: {routine: {keep_last: 1}, phase: {keep_last: 1}}}")
HUMAN = workflow(front=["model: human"])
SCRIPT = Write("answer.sh", "cat >/dev/null\necho 'Ten gardens.'\n")
PROGRAM = (*workflow(front=["model: 'command:sh answer.sh'"]), SCRIPT)
CONTRACTED = (*workflow(NO_SNAPSHOTS), Write("small/contracts/gardens.json", CONTRACT))

_COMPLETE = {"_HAYTHAM_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
_EDITOR = {"VISUAL": "", "EDITOR": f"{sys.executable} editor.py"}

RUN = [
    Scenario("run_built_in", BUILT_IN),
    Scenario("run_small", f"run {IDEA} --workflow small", SMALL),
    Scenario("run_json", f"run {IDEA} --workflow small --json", PLAIN),
    Scenario("run_quiet", f"run {IDEA} --workflow small --quiet", PLAIN),
    Scenario("run_yes", f"run {IDEA} --workflow small --yes", SMALL),
    Scenario("run_mode_and_user", f"run {IDEA} --workflow small --mode short --user bob", PLAIN),
    Scenario(
        "run_idea_of_a_file", "run idea.md --workflow small", (*PLAIN, Write("idea.md", "Lend ladders\n\nTo all.\n"))
    ),
    Scenario("run_idea_of_standard_input", "run - --workflow small", PLAIN, stdin="Lend ladders\n"),
    Scenario("run_project_again", "run --project rain --workflow small", GATE_1),
    Scenario(
        "run_model_and_limits", f"run {IDEA} --workflow small --model worksheet --max-cost 5 --max-tokens 9000", PLAIN
    ),
    Scenario(
        "run_model_of_the_environment",
        f"run {IDEA} --workflow small",
        PLAIN,
        environment={"HAYTHAM_MODEL": "worksheet"},
    ),
    Scenario("run_program", f"run {IDEA} --workflow small", PROGRAM),
    Scenario("run_function", f"run {IDEA} --workflow small", coded("cheap")),
    Scenario(
        "run_function_that_changes_the_state", f"run {IDEA} --workflow small", coded("change_state", NO_SNAPSHOTS)
    ),
    Scenario("run_function_that_fails", f"run {IDEA} --workflow small", coded("fail", NO_SNAPSHOTS)),
    Scenario("run_function_that_fails_json", f"run {IDEA} --workflow small --json", coded("fail", NO_SNAPSHOTS)),
    Scenario(
        "run_function_that_tells_a_secret",
        f"run {IDEA} --workflow small",
        coded("tell", NO_SNAPSHOTS),
        environment={"DB_PASSWORD": "correct-horse-battery"},
    ),
    Scenario("run_person", f"run {IDEA} --workflow small", HUMAN),
    Scenario("run_past_the_budget", f"run {IDEA} --workflow small --max-cost 0.3 --yes", coded("cheap")),
    Scenario(
        "run_past_the_budget_json",
        f"run {IDEA} --workflow small --max-cost 0.3 --yes --json",
        coded("cheap", NO_SNAPSHOTS),
    ),
    Scenario("run_until_drift_pauses", DRIFTING[-1], DRIFTING[:-1]),
    Scenario("run_until_drift_pauses_json", f"{DRIFTING[-1]} --json", DRIFTING[:-1]),
    Scenario(
        "run_refreshed_at_drift",
        f"run {IDEA} --workflow small",
        workflow("drift: {cycles: 1, action: refresh}", phases=UNREVIEWED),
    ),
    Scenario("run_recorded", f"run {IDEA} --workflow small --yes --record said", coded("cheap", NO_SNAPSHOTS)),
    Scenario("run_replayed", f"run {IDEA} --workflow small --yes --model replay:said", (*RECORDED, Remove("projects"))),
    Scenario(
        "run_contract_kept",
        f"run {IDEA} --workflow small",
        (*CONTRACTED, agent("one", "haytham: {contract: gardens}")),
    ),
    Scenario(
        "run_contract_broken",
        f"run {IDEA} --workflow small",
        (
            *CONTRACTED,
            agent("one", "model: python:mine:write", "haytham: {contract: gardens, repairs: 1, retries: 0}"),
            Write("mine.py", AGENTS),
        ),
    ),
    Scenario(
        "run_sequential_without_review",
        f"run {IDEA} --workflow small",
        workflow(
            NO_SNAPSHOTS,
            phases="""
            - {number: 1, name: One, slug: one, agents: [one], review: none}
            - {number: 2, name: Two, slug: two, agents: [two, three], needs: [1], run: sequential}
            - {number: 3, name: Three, slug: three, agents: [four], needs: [2]}
            """,
        ),
    ),
    Scenario(
        "run_every_step_kept", f"run {IDEA} --workflow small --mode short", workflow("checkpointing: {auto: every}")
    ),
    Scenario("run_refused_without_an_idea", "run"),
    Scenario("run_refused_empty_idea", "run -", stdin=" \n"),
    Scenario("run_refused_unknown_workflow", f"run {IDEA} --workflow nowhere"),
    Scenario("run_refused_unknown_model", f"run {IDEA} --model gpt"),
    Scenario("run_refused_unknown_mode", f"run {IDEA} --mode odd"),
    Scenario("run_refused_invalid_workflow", f"run {IDEA} --workflow small", (*SMALL, Remove("small/agents/two.md"))),
    Scenario("run_refused_invalid_limit", f"run {IDEA} --max-cost little"),
]
RESUME = [
    Scenario("config", "config", (Write("projects/haytham.toml", TOML), *started(None, "--max-cost 9"))),
    Scenario("config_without_a_session", "config snapshots.auto --json", (Write("projects/haytham.toml", TOML),)),
    Scenario(
        "config_json",
        "config budget --json",
        started(None, "--max-cost 9"),
        environment={"HAYTHAM_BUDGET_WARN_AT": "0.5"},
    ),
    Scenario("config_refused_unknown", "config snapshots.auot", GATE_1),
    Scenario("config_refused_variable", "config", GATE_1, environment={"HAYTHAM_SNAPSHOTS_AUTO": "often"}),
    Scenario("config_refused_file", "config", (*GATE_1, Write("projects/haytham.toml", "\n[snapshots]\nauto = 1\n"))),
    Scenario("resume_built_in_second_phase", "resume", (BUILT_IN, "approve")),
    Scenario("resume_at_a_gate", "resume", GATE_1),
    Scenario("resume_at_a_gate_json", "resume --json", GATE_1),
    Scenario("resume_after_approval", "resume", APPROVED_1),
    Scenario("resume_with_retention", "resume --yes", (*started(ONE_OF_EACH), "approve")),
    Scenario("resume_to_the_end", "resume --yes", APPROVED_2),
    Scenario("resume_completed", "resume", DONE),
    Scenario("resume_rejected", "resume", REJECTED),
    Scenario("resume_after_changes", "resume", CHANGES_2),
    Scenario("resume_after_changes_of_one_agent", "resume", CHANGES_OF_TWO),
    Scenario("resume_after_skip", "resume", (*APPROVED_1, "skip")),
    Scenario("resume_after_typed_approval", "resume", (*GATE_1, *TYPED)),
    Scenario(
        "resume_after_typed_changes",
        "resume",
        (
            *GATE_1,
            Edit(FEEDBACK, "- Approved: -", "- Approved: false"),
            Edit(FEEDBACK, "## Requested Changes\n-", "## Requested Changes\n- Change 1: Name one city"),
        ),
    ),
    Scenario(
        "resume_after_typed_contradiction",
        "resume",
        (
            *GATE_1,
            Edit(FEEDBACK, "- Approved: -", "- Approved: true"),
            Edit(FEEDBACK, "- Action: pending", "- Action: rejected"),
        ),
    ),
    Scenario("resume_after_an_edit", "resume", STALE_2),
    Scenario("resume_after_an_edit_was_approved", "resume", (*STALE_2, "approve 1")),
    Scenario(
        "resume_keeps_a_stale_text_of_a_person",
        "resume",
        (*STALE_2, Edit(TWO, "Lend rain barrels", "Lease rain barrels"), "approve 1"),
    ),
    Scenario("resume_with_a_lost_output", "resume", (*GATE_2, Remove(f"{SESSION}/phase_2_two/three.md"))),
    Scenario("resume_with_input", "resume --input 'Name three rivals'", APPROVED_1),
    Scenario("resume_with_input_at_a_gate", "resume --input -", GATE_1, stdin="Name three rivals\n"),
    Scenario("resume_with_input_for_the_next_attempt", "resume --input 'Name three rivals'", CHANGES_2),
    Scenario("resume_with_input_refused", "resume --input more", DONE),
    Scenario("resume_from_a_snapshot", "resume 1 -s rain", GATE_2),
    Scenario("resume_after_failure", "resume", FAILED),
    Scenario("resume_paused", "resume", PAUSED),
    Scenario("resume_paused_by_drift", "resume", DRIFTING),
    Scenario("resume_with_a_higher_limit", "resume --max-cost 9 --max-tokens 5000 --yes", PAUSED),
    Scenario("resume_with_another_model", "resume --model worksheet", APPROVED_1),
    Scenario("resume_recording", "resume --record said", (*coded("cheap", NO_SNAPSHOTS), *started()[-1:], "approve")),
    Scenario(
        "resume_no_longer_recording",
        "resume --no-record",
        (*coded("cheap", NO_SNAPSHOTS), f"run {IDEA} --workflow small --record said", "approve"),
    ),
    Scenario("resume_untrusted", "resume", (*started(PROGRAM), "approve", Edit("answer.sh", "Ten", "Nine"))),
    Scenario("resume_trusting", "resume --trust", (*started(PROGRAM), "approve", Edit("answer.sh", "Ten", "Nine"))),
    Scenario("resume_refused_workflow_changed", "resume", WORKFLOW_CHANGED),
    Scenario("resume_accepting_the_workflow", "resume --accept-workflow", WORKFLOW_CHANGED),
    Scenario("resume_keeping_the_workflow", "resume --keep-workflow", WORKFLOW_CHANGED),
    Scenario(
        "resume_of_what_a_person_wrote",
        "resume",
        (*started(HUMAN), Edit(ONE, "\n## Output\n", "\n## Output\n\nTen gardens would pay.\n")),
    ),
    Scenario("resume_broken_file", "resume", BROKEN),
    Scenario("resume_broken_file_json", "resume --json", BROKEN),
    Scenario(
        "resume_conflict_markers", "resume", (*GATE_1, *TYPED, Edit(ONE, "## Output\n", f"## Output\n\n{CONFLICT}"))
    ),
    Scenario("resume_refused_among_several", "resume", TWO_PROJECTS),
    Scenario("resume_refused_unknown", "resume nothing", GATE_1),
    Scenario("retry_approved", "retry 1", GATE_2),
    Scenario("retry_waiting", "retry 2", GATE_2),
    Scenario("retry_revised_by_a_person", "retry 2", (*GATE_2, Edit(TWO, "Lend rain barrels", "Lease rain barrels"))),
    Scenario(
        "retry_failed",
        "retry 1",
        (*FAILED, Edit("mine.py", 'raise ValueError("no such market")', 'return "Fine."'), "resume --trust"),
    ),
    Scenario("retry_failed_untrusted", "retry 1", (*FAILED, Edit("mine.py", "no such market", "no market"))),
    Scenario("retry_skipped", "retry 2", (*APPROVED_1, "skip", "resume")),
    Scenario("retry_refused_with_work_left", "retry 2", STALE_2),
    Scenario("retry_anyway", "retry 2 --anyway", STALE_2),
    Scenario(
        "retry_with_another_model", "retry 1 --model python:mine:write --json", (*GATE_1, Write("mine.py", AGENTS))
    ),
    Scenario("retry_refused_unknown_phase", "retry 9", GATE_1),
]
WORK = [
    Scenario("work_once", "work --once", APPROVED_1),
    Scenario("work_once_json", "work --once --json", APPROVED_1),
    Scenario("work_once_with_nothing_to_do", "work --once", GATE_1),
    Scenario("work_once_in_an_empty_folder", "work --once"),
    Scenario("work_once_paused_by_drift", "work --once", DRIFTING),
    Scenario("work_once_after_failure", "work --once", FAILED),
    Scenario("work_once_workflow_changed", "work --once", (*APPROVED_1, Edit("small/workflow.yaml", "Three", "Third"))),
    Scenario("work_once_untrusted", "work --once", (*started(PROGRAM), "approve", Edit("answer.sh", "Ten", "Nine"))),
]
DECIDE = [
    Scenario("approve", "approve", GATE_1),
    Scenario("approve_with_comments", "approve 1 -m 'Go on, but name one city.' --user bob", GATE_1),
    Scenario("approve_json", "approve --json", GATE_1),
    Scenario("approve_an_edited_text", "approve", (*GATE_1, Edit(ONE, "Lend rain barrels", "Lend water butts"))),
    Scenario("approve_with_a_hook", "approve", started(workflow("hooks: [{on: decision, run: ['false']}]"))),
    Scenario("approve_with_an_open_need", "approve 2", STALE_2),
    Scenario("approve_refused_with_stale_needs", "approve 3", STALE_3),
    Scenario("approve_anyway", "approve 3 --anyway", STALE_3),
    Scenario("approve_again", "approve 1 -m 'Once more'", GATE_2),
    Scenario("approve_refused_nothing_waits", "approve", APPROVED_1),
    Scenario("approve_refused_not_run", "approve 3", GATE_1),
    Scenario("approve_refused_json", "approve 3 --json", GATE_1),
    Scenario("approve_refused_rejected", "approve", REJECTED),
    Scenario("approve_refused_completed", "approve", DONE),
    Scenario(
        "approve_refused_conflict_markers", "approve", (*GATE_1, Edit(ONE, "## Output\n", f"## Output\n\n{CONFLICT}"))
    ),
    Scenario("approve_refused_broken_file", "approve", BROKEN),
    Scenario(
        "approve_a_broken_contract",
        "approve",
        (
            *CONTRACTED,
            agent("one", "haytham: {contract: gardens}"),
            *started()[-1:],
            Edit(ONE, "## Why", "## What"),
        ),
    ),
    Scenario(
        "approve_a_failed_phase_mended_by_hand",
        "approve 1",
        (*FAILED, Edit(ONE, "\n## Output\n", "\n## Output\n\nTen gardens.\n")),
    ),
    Scenario(
        "request_changes", "request-changes -m 'Too broad' --change 'Name one city' --change 'Say who pays'", GATE_2
    ),
    Scenario("request_changes_of_one_agent", "request-changes 2 --agent two --change 'Name one city' --json", GATE_2),
    Scenario(
        "request_changes_of_an_edited_text",
        "request-changes -m 'Shorter'",
        (*GATE_1, Edit(ONE, "Lend rain barrels", "Lend water butts")),
    ),
    Scenario("request_changes_refused_without_words", "request-changes", GATE_1),
    Scenario("request_changes_refused_unknown_agent", "request-changes --agent nobody -m x", GATE_1),
    Scenario("reject", "reject -m 'Nobody would pay'", GATE_1),
    Scenario("reject_json", "reject --json", GATE_1),
    Scenario("skip", "skip", APPROVED_1),
    Scenario("skip_a_waiting_phase", "skip 1 -m 'Known already' --json", GATE_1),
    Scenario("undo", "undo", APPROVED_1),
    Scenario("undo_changes_json", "undo --json", (*GATE_1, "request-changes --change 'Name one city'")),
    Scenario("undo_refused_built_on", "undo", (*APPROVED_1, "resume")),
    Scenario("undo_refused_nothing", "undo --user bob", APPROVED_1),
    Scenario("skip_refused_completed", "skip", DONE),
    Scenario(
        "review_approves",
        "review",
        (*GATE_1, editor(("user_feedback.md", "Approved: -", "Approved: true"), ("one.md", "Lend rain", "Lease rain"))),
        environment=_EDITOR,
    ),
    Scenario("review_decides_nothing", "review 1 --json", (*GATE_1, editor()), environment=_EDITOR),
    Scenario("review_of_a_broken_file", "review", (*BROKEN, editor()), environment=_EDITOR),
    Scenario(
        "review_mends_a_broken_file",
        "review",
        (*BROKEN, editor(("two.md", "Status: fine", "Status: completed"))),
        environment=_EDITOR,
    ),
    Scenario("review_with_an_editor_that_fails", "review", (*GATE_1, editor(code=3)), environment=_EDITOR),
    Scenario("review_refused_without_input", "review --no-input", GATE_1),
    Scenario("review_refused_without_an_editor", "review", GATE_1, environment={"EDITOR": "no_such_editor"}),
]
NOTED = ("memory add 'We sell in Leeds only.' --tag market", "memory add 'Write British English.'")
NOTE_FILE = "projects/memory/ann/*-000000.md"
MEMORY = [
    Scenario("memory_add", "memory add 'We sell in Leeds only.' --tag market --tag place"),
    Scenario("memory_add_json", "memory add 'We sell in Leeds only.' --json --user 'Ann B.'"),
    Scenario("memory_add_of_standard_input", "memory add -", stdin="We sell in Leeds.\nAnd in York.\n"),
    Scenario("memory_add_refused_empty", "memory add ' '"),
    Scenario("memory_search", "memory search leeds english", NOTED),
    Scenario("memory_search_json", "memory search leeds --json", NOTED),
    Scenario("memory_search_of_nothing", "memory search 'zeppelin (*'", NOTED),
    Scenario("memory_search_of_another_user", "memory search leeds --user bob", NOTED),
    Scenario("memory_list", "memory list", (*APPROVED_1, "memory add 'Write British English.'")),
    Scenario("memory_list_json", "memory list --json", NOTED),
    Scenario("memory_list_of_nothing", "memory list"),
    Scenario(
        "memory_list_with_a_broken_one", "memory list", (*NOTED, Edit(NOTE_FILE, "- Created: 2", "- Created: in 2"))
    ),
    Scenario("memory_show", "memory show 000000", (*NOTED, "memory edit 000000 'We sell in York, too.'")),
    Scenario("memory_show_json", "memory show 000000 --json", (*NOTED, "memory edit 000000 'We sell in York, too.'")),
    Scenario("memory_show_refused_unknown", "memory show nothing", NOTED),
    Scenario("memory_edit", "memory edit 000000 'We sell in York, too.'", NOTED),
    Scenario("memory_edit_tags_json", "memory edit 000000 --tag place --json", NOTED),
    Scenario(
        "memory_edit_in_an_editor",
        "memory edit 000000",
        (*NOTED, editor((".md", "Leeds", "York"))),
        environment=_EDITOR,
    ),
    Scenario("memory_edit_refused_without_input", "memory edit 000000 --no-input", NOTED),
    Scenario("memory_delete", "memory delete 000000", NOTED),
    Scenario("memory_delete_json", "memory delete 000000 --json", NOTED),
    Scenario("memory_unknown_word", "memory forget 000000", NOTED),
    Scenario("prompt_with_notes", "prompt 1 one", (*NOTED, *GATE_1)),
    Scenario("run_refused_reserved_name", "run 'Lend ladders' --name Memory"),
]
LOOK = [
    Scenario("status_without_a_session", "status"),
    Scenario("status_first_gate", "status", GATE_1),
    Scenario("status_second_gate", "status", GATE_2),
    Scenario("status_json", "status --json", GATE_2),
    Scenario("status_second_attempt", "status", ATTEMPT_2),
    Scenario("status_stale", "status", STALE_2),
    Scenario("status_stale_json", "status --json", STALE_2),
    Scenario("status_approved_anyway", "status", (*STALE_3, "approve 3 --anyway")),
    Scenario("status_changes_requested", "status", CHANGES_2),
    Scenario("status_changes_requested_of_one_agent", "status", CHANGES_OF_TWO),
    Scenario("status_skipped", "status", (*APPROVED_1, "skip")),
    Scenario("status_completed", "status", DONE),
    Scenario("status_rejected", "status", REJECTED),
    Scenario("status_failed", "status", FAILED),
    Scenario("status_paused", "status", PAUSED),
    Scenario("status_paused_by_drift", "status", DRIFTING),
    Scenario("status_paused_by_drift_json", "status --json", DRIFTING),
    Scenario("status_of_what_a_person_is_to_write", "status", started(HUMAN)),
    Scenario("status_typed_approval", "status", (*GATE_1, *TYPED)),
    Scenario("status_broken_file", "status", BROKEN),
    Scenario("status_broken_file_json", "status --json", BROKEN),
    Scenario("status_of_several", "status ladders", TWO_PROJECTS),
    Scenario("status_refused_unknown", "status nothing", GATE_1),
    Scenario("list_labels", "list --all", (*RENAMED, "fork --name cheaper", "session archive cheaper")),
    Scenario("list_without_archived", "list", ARCHIVED),
    Scenario("status_of_a_name", "status 'Half the price' --json", RENAMED),
    Scenario("list_without_a_session", "list"),
    Scenario("list_of_several", "list", (*TWO_PROJECTS, "reject -s ladders")),
    Scenario("list_json", "list --json", TWO_PROJECTS),
    Scenario("list_mine", "list --mine", TWO_PROJECTS),
    Scenario("list_waiting_by_project", "list --waiting --sort project --limit 1 --json", TWO_PROJECTS),
    Scenario("list_of_nobody", "list --user bob --status waiting", TWO_PROJECTS),
    Scenario(
        "list_with_a_broken_one",
        "list",
        (*TWO_PROJECTS, Write("projects/rain/sessions/2*/session_manifest.md", "mine\n")),
    ),
    Scenario("show", "show", GATE_2),
    Scenario("show_one_agent", "show 2 three", GATE_2),
    Scenario("show_task", "show 2 two --task", ATTEMPT_2),
    Scenario("show_attempt", "show 2 --attempt 1", ATTEMPT_2),
    Scenario("show_json", "show 2 --json", GATE_2),
    Scenario("show_at_a_snapshot", "show 1 one --at 1", STALE_2),
    Scenario("show_document_of_a_snapshot", "show --at 1 --path session_manifest.md", GATE_2),
    Scenario("show_document_of_a_snapshot_json", "show --at 1 --path phase_1_one/user_feedback.md --json", GATE_2),
    Scenario("show_refused_not_run", "show 3", GATE_1),
    Scenario("show_refused_unknown_agent", "show 1 nobody", GATE_1),
    Scenario("show_refused_unknown_document", "show --at 1 --path nothing.md", GATE_1),
    Scenario("cost_of_nothing", "cost", GATE_1),
    Scenario("cost", "cost", SPENT),
    Scenario("cost_json", "cost --json", SPENT),
    Scenario("cost_paused", "cost", PAUSED),
    Scenario("cost_of_a_fork", "cost cheaper", (*SPENT, "fork --name cheaper")),
    Scenario("cost_of_all", "cost --all", (*SPENT, "run 'Lend ladders' --name Ladders --workflow small")),
    Scenario("cost_of_all_json", "cost --all --json", SPENT),
    Scenario("log", "log", APPROVED_1),
    Scenario("log_json", "log --json -n 2", APPROVED_1),
    Scenario("log_of_kinds", "log --all --kind decision --kind review_opened --since 2024-11-24", GATE_2),
    Scenario("log_refused_unknown_time", "log --since lately", GATE_1),
    Scenario("log_refused_all_and_some", "log --all -n 3", GATE_1),
    Scenario("stats_without_a_session", "stats"),
    Scenario("stats", "stats", (*CHANGES_2, "resume", "fork --name cheaper")),
    Scenario("stats_narrow", "stats", SPENT, environment={"COLUMNS": "45", "TERM": "dumb"}),
    Scenario("stats_json", "stats cheaper --json", (*SPENT, "fork --name cheaper")),
    Scenario("stats_of_a_project", "stats rain", TWO_PROJECTS),
    Scenario("stats_of_a_session", "stats rain/2", FAILED),
    Scenario(
        "stats_with_a_broken_one",
        "stats",
        (*TWO_PROJECTS, Write("projects/rain/sessions/2*/session_manifest.md", "mine\n")),
    ),
    Scenario("stats_refused_unknown", "stats nothing", GATE_1),
    Scenario("agents_built_in", "agents"),
    Scenario("agents_of_a_session", "agents", started(PROGRAM)),
    Scenario("agents_of_a_session_untrusted", "agents", (*started(PROGRAM), Edit("answer.sh", "Ten", "Nine"))),
    Scenario("agents_of_a_workflow", "agents --workflow small", coded("cheap")),
    Scenario("agents_json", "agents --json", GATE_1),
    Scenario(
        "agents_replayed", "agents", (*RECORDED, Remove("projects"), f"run {IDEA} --workflow small --model replay:said")
    ),
    Scenario("prompt", "prompt 1 one", GATE_1),
    Scenario("prompt_of_a_phase", "prompt 2", APPROVED_1),
    Scenario("prompt_of_the_next_attempt", "prompt 2 two", CHANGES_2),
    Scenario("prompt_json", "prompt 2 two --json", GATE_2),
    Scenario("prompt_of_a_contract", "prompt 1", (BUILT_IN,)),
    Scenario("prompt_refused_unknown_agent", "prompt 1 nobody", GATE_1),
]
CARE = [
    Scenario("validate", "validate", GATE_2),
    Scenario("validate_json", "validate --json", GATE_2),
    Scenario("validate_broken_file", "validate", (*BROKEN, Edit(FEEDBACK, "- Action: approved", "- Action: rejected"))),
    Scenario("validate_broken_file_json", "validate --json", BROKEN),
    Scenario("validate_conflict_markers", "validate", (*GATE_1, Edit(ONE, "## Output\n", f"## Output\n\n{CONFLICT}"))),
    Scenario(
        "validate_shown_copy_behind",
        "validate",
        (*GATE_1, Edit(f"{SESSION}/session_manifest.md", "- Status: waiting", "- Status: completed")),
    ),
    Scenario(
        "validate_stray_files",
        "validate",
        (*GATE_1, Write(f"{SESSION}/phase_2_two/notes.md", "mine\n"), Remove(f"{SESSION}/session_manifest.md")),
    ),
    Scenario("validate_workflow", "validate small", SMALL),
    Scenario(
        "validate_broken_workflow", "validate small", (*SMALL, Edit("small/workflow.yaml", "needs: [2]", "needs: [7]"))
    ),
    Scenario(
        "validate_broken_template", "validate small", (*SMALL, Edit("small/agents/one.md", "{{ idea }}", "{{ idea"))
    ),
    Scenario("validate_one_file", "validate projects/rain/project.md", GATE_1),
    Scenario("validate_refused_missing", "validate nothing", GATE_1),
    Scenario("validate_refused_without_projects", "validate"),
    Scenario("doctor_with_nothing_to_do", "doctor", GATE_2),
    Scenario(
        "doctor_shown_copies",
        "doctor",
        (
            *GATE_2,
            Edit(f"{SESSION}/session_manifest.md", "- Status: waiting", "- Status: completed"),
            Edit(f"{SESSION}/phase_1_one/checkpoint.md", "- one: completed", "- one: failed"),
        ),
    ),
    Scenario(
        "doctor_lost_manifest", "doctor --user ann --mode mvp", (*GATE_2, Remove(f"{SESSION}/session_manifest.md"))
    ),
    Scenario("doctor_lost_manifest_json", "doctor --json", (*GATE_2, Remove(f"{SESSION}/session_manifest.md"))),
    Scenario(
        "doctor_lost_folders_and_temporary_files",
        "doctor",
        (
            *GATE_1,
            Remove(f"{SESSION}/phase_3_three"),
            Write(f"{SESSION}/phase_1_one/.haytham-0123", "half a", modified=0.0),
        ),
    ),
    Scenario("doctor_lost_manifest_and_events", "doctor", LOST),
    Scenario("doctor_refused_without_a_user", "doctor", (*LOST, Remove("projects/rain/project.md"))),
    Scenario("doctor_broken_file", "doctor", BROKEN),
    Scenario("doctor_refused_without_a_session", "doctor"),
    Scenario("init", "init mine"),
    Scenario("init_json", "init mine --json"),
    Scenario("init_refused", "init small", SMALL),
    Scenario("graph", "graph"),
    Scenario("graph_of_a_folder", "graph small", SMALL),
    Scenario("graph_of_a_session", "graph", APPROVED_2),
    Scenario("graph_json", "graph small --json", SMALL),
    Scenario("graph_mermaid", "graph small --mermaid", SMALL),
    Scenario("graph_refused", "graph nothing", GATE_1),
    Scenario("init_minimal", "init mine --template minimal"),
    Scenario("init_rfc", "init mine --template rfc --reviewer ann --reviewer bob"),
    Scenario("init_of_a_template_without_reviewers", "init mine --template minimal --reviewer ann"),
]
PAST = [
    Scenario("checkpoints_without_a_snapshot", "checkpoints", started(PLAIN)),
    Scenario("checkpoints_switched_off", "checkpoints", started(workflow("checkpointing: {enabled: false}"))),
    Scenario("checkpoints", "checkpoints", LABELLED),
    Scenario("checkpoints_json", "checkpoints --json", LABELLED),
    Scenario("checkpoints_of_forks", "checkpoints rain/2", FORK),
    Scenario("checkpoints_of_a_kind", "checkpoints --kind manual", LABELLED),
    Scenario("checkpoints_of_a_status", "checkpoints --status completed", LABELLED),
    Scenario("checkpoints_limited", "checkpoints --limit 1", LABELLED),
    Scenario("checkpoints_of_all", "checkpoints --all", TWO_PROJECTS),
    Scenario("checkpoints_of_a_user", "checkpoints --all --user bob --json", TWO_PROJECTS),
    Scenario("checkpoints_in_sqlite", "checkpoints", started(workflow("checkpointing: {storage_type: sqlite}"))),
    Scenario("snapshots", "snapshots", GATE_1),
    Scenario("list_checkpoints", "list-checkpoints", GATE_1),
    Scenario("snapshot", "snapshot -m 'before the rewrite'", GATE_2),
    Scenario("snapshot_json", "snapshot --json", STALE_2),
    Scenario("snapshot_routine_unchanged", "snapshot --kind routine", GATE_2),
    Scenario("snapshot_broken_file", "snapshot", BROKEN),
    Scenario("snapshot_refused_switched_off", "snapshot", started(workflow("checkpointing: {enabled: false}"))),
    Scenario(
        "snapshot_with_retention",
        "snapshot --kind routine",
        (*started(ONE_OF_EACH), *ROUTINE[-6:], Write(f"{SESSION}/evidence.md", "d\n")),
    ),
    Scenario("restore", "restore 1", GATE_2),
    Scenario("restore_json", "restore 1 --json", GATE_2),
    Scenario("restore_after_an_edit", "restore 2", STALE_2),
    Scenario("restore_a_broken_file", "restore 2", BROKEN),
    Scenario("restore_refused_unknown", "restore 9", GATE_1),
    Scenario("restore_refused_among_several", "restore 1", TWO_PROJECTS),
    Scenario("recover_nothing", "recover", GATE_1),
    Scenario("recover", "recover", RESTORED),
    Scenario("recover_json", "recover --json", RESTORED),
    Scenario("recover_list", "recover --list", RESTORED),
    Scenario("recover_latest", "recover --latest", RESTORED),
    Scenario("recover_latest_with_a_state", "recover --latest", (*CITY_LOST, "restore 1")),
    Scenario("recover_latest_with_a_state_json", "recover --latest --json", (*CITY_LOST, "restore 1")),
    Scenario("recover_after_a_failure", "recover", FAILED_WITH_SNAPSHOTS),
    Scenario("recover_refused_other_kind", "recover --at 1", RESTORED),
    Scenario("recover_at", "recover --at 4 --json", RESTORED),
    Scenario("recover_clear", "recover --clear", RESTORED),
    Scenario("recover_refused_nothing", "recover --latest", GATE_1),
    Scenario("fork", "fork --name cheaper --purpose 'half the price'", GATE_2),
    Scenario("fork_of_a_snapshot", "fork 1 --name cheaper --json", GATE_2),
    Scenario("fork_with_a_model", "fork --name other --model python:mine:write", (*GATE_1, Write("mine.py", AGENTS))),
    Scenario(
        "fork_with_a_workflow",
        "fork --name other --workflow small",
        (*GATE_1, Edit("small/workflow.yaml", "slug: one", "slug: first")),
    ),
    Scenario("fork_refused_same_name", "fork --name cheaper -s rain/2", FORK),
    Scenario("fork_refused_without_a_name", "fork", GATE_1),
    Scenario("diff", "diff 2", STALE_2),
    Scenario("diff_json", "diff 2 --json", STALE_2),
    Scenario("diff_stat", "diff 1 2 --stat", GATE_2),
    Scenario("diff_all", "diff 2 --all", STALE_2),
    Scenario("diff_of_nothing", "diff 2 --quiet", (*GATE_1, "snapshot")),
    Scenario("diff_of_sessions", "diff cheaper -s rain/2", FORK_CHANGED),
    Scenario("diff_refused_unknown", "diff nothing", GATE_1),
    Scenario("merge", "merge cheaper --phase 2 --phase 1", FORK_CHANGED),
    Scenario("merge_json", "merge cheaper --phase 2 --json", FORK_CHANGED),
    Scenario("merge_nothing_new", "merge cheaper --phase 1", FORK),
    Scenario("merge_again", "merge cheaper --phase 2", MERGED_AGAIN),
    Scenario("merge_approved", "merge cheaper --phase 2", (*FORK_CHANGED, "approve -s rain/2")),
    Scenario("merge_not_run_here", "merge cheaper --phase 3", FORK_AHEAD),
    Scenario("merge_conflict", "merge cheaper --phase 2", BOTH_CHANGED),
    Scenario("merge_conflict_json", "merge cheaper --phase 2 --json", BOTH_CHANGED),
    Scenario("merge_ours", "merge cheaper --phase 2 --ours", BOTH_CHANGED),
    Scenario("merge_theirs", "merge cheaper --phase 2 --theirs", BOTH_CHANGED),
    Scenario("merge_refused_no_fork", "merge rain --phase 1", GATE_1),
    Scenario("session_rename", "session rename rain 'Half the price'", GATE_1),
    Scenario("session_rename_json", "session rename 'Half the price' '' --json", RENAMED),
    Scenario("session_rename_refused_taken", "session rename rain/2 cheaper", FORK),
    Scenario("session_archive", "session archive rain/2", FORK),
    Scenario("session_archive_undo_json", "session archive rain/2 --undo --json", ARCHIVED),
    Scenario("session_delete", "session delete cheaper --yes", FORK),
    Scenario("session_delete_json", "session delete cheaper --yes --json", FORK),
    Scenario("session_delete_dry_run", "session delete rain/2 --dry-run", FORK),
    Scenario("session_delete_what_was_forked", "session delete rain/2 --yes", FORK),
    Scenario("session_delete_refused_unconfirmed", "session delete cheaper", FORK),
    Scenario("session_delete_refused_without_a_name", "session delete --yes", GATE_1),
    Scenario("discard", "discard cheaper --yes", FORK),
    Scenario("pin", "pin 1", GATE_2),
    Scenario("pin_json", "pin 1 --json", GATE_2),
    Scenario("unpin", "unpin 1", (*GATE_2, "pin 1")),
    Scenario("unpin_what_is_not_pinned", "unpin 1 --json", GATE_2),
    Scenario("delete", "delete 2", ROUTINE),
    Scenario("delete_json", "delete 3 --json", LABELLED),
    Scenario("delete_refused_pinned", "delete 1", (*GATE_2, "pin 1")),
    Scenario("delete_refused_forked", "delete 1 -s rain/2", (*GATE_2, "fork 1 --name cheaper")),
    Scenario("prune_by_the_rules", "prune", ROUTINE),
    Scenario(
        "prune_with_retention", "prune", (*started(ONE_OF_EACH), *ROUTINE[-6:-4], "pin 2", *ROUTINE[-4:], "unpin 2")
    ),
    Scenario("prune_older_than", "prune --older-than 1m --kind routine", ROUTINE),
    Scenario("prune_pinned", "prune --older-than 0m --kind routine", (*ROUTINE, "pin 4")),
    Scenario("prune_dry_run", "prune --older-than 1m --dry-run", ROUTINE),
    Scenario("prune_json", "prune --older-than 1m --json", ROUTINE),
    Scenario(
        "prune_all", "prune --all --older-than 1m", (*ROUTINE, "run 'Lend ladders' --name Ladders --workflow small")
    ),
    Scenario("prune_refused_age", "prune --older-than soon", GATE_1),
    Scenario("verify", "verify", GATE_2),
    Scenario("verify_json", "verify --all --json", TWO_PROJECTS),
    Scenario(
        "verify_damaged_record",
        "verify",
        (*GATE_1, Edit("projects/*/history/snapshots/*/*/000001*.md", "- Kind: phase", "- Kind: final")),
    ),
]
AROUND = [
    Scenario("version", "--version"),
    Scenario("unknown_command", "statsu"),
    Scenario("unknown_word", "'Lend ladders'"),
    Scenario("in_another_folder", "-C inner list", (Write("inner/notes.txt", "mine\n"),)),
    Scenario("nothing_said", ""),
    Scenario("complete_commands", "", environment={**_COMPLETE, "COMP_WORDS": "haytham re"}),
    Scenario(
        "complete_sessions", "", FORK, environment={**_COMPLETE, "COMP_WORDS": "haytham status ", "COMP_CWORD": "2"}
    ),
    Scenario(
        "complete_snapshots", "", FORK, environment={**_COMPLETE, "COMP_WORDS": "haytham restore 2", "COMP_CWORD": "2"}
    ),
]


def help_scenarios(names):
    """The help of the command itself and of every command."""
    return [Scenario("help", "--help"), *(Scenario(f"help_{name}", f"{name} --help") for name in names)]


SCENARIOS = [*RUN, *RESUME, *WORK, *DECIDE, *MEMORY, *LOOK, *CARE, *PAST, *AROUND]
COMMANDS = tuple(root.list_commands(Context(root)))
ALL = [*SCENARIOS, *help_scenarios(COMMANDS)]
