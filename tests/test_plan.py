"""The table the product stands on, row by row: what resume does with a phase, whatever it was done with before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from haytham.config.workflow import Phase
from haytham.session.plan import NextAction, OutputState, PhaseState, ReviewState, next_action

PHASE = Phase("Two", number=2, slug="two", agents=("b", "c"), needs=(1,))
UNASKED = replace(PHASE, review="none")
OWN = OutputState("completed", text="t", agent_digest="t", task="k", current_task="k")
REVISED = replace(OWN, text="mine")
STALE = replace(OWN, current_task="k2", changed=("phase 1: a",))
STALE_REVISED = replace(STALE, text="mine")
FAILED = replace(OWN, status="failed", text="", agent_digest="")
REPAIRED = replace(FAILED, text="mine")
UNWRITTEN = replace(OWN, status="pending")
WRITTEN = replace(UNWRITTEN, text="mine")


def facts(b=OWN, c=OWN, feedback=None, phase=PHASE, **more):
    """A completed phase in its first attempt, but for what is given."""
    outputs = {name: output for name, output in (("b", b), ("c", c)) if output is not None}
    given = {"status": "completed", "attempt": 1, **more}
    return PhaseState(phase, outputs=outputs, feedback=feedback, **given)


def review(decision, b=OWN, c=OWN, attempt=1):
    """A review of these outputs, on the ground they would be written on now."""
    outputs = {"b": b, "c": c}
    texts = {name: output.text for name, output in outputs.items()}
    return ReviewState(decision, attempt, texts, {name: output.current_task for name, output in outputs.items()})


def step(*given, **more):
    verdict = next_action(facts(*given, **more))
    return verdict.action, verdict.agents


def test_a_rejection_ends_the_session_before_anything_else():
    """Rejected: the session is over, also where the phase is skipped, failed or stale."""
    rejected = review("rejected")
    assert step(feedback=rejected) == ("rejected", ())
    assert step(FAILED, STALE, feedback=rejected, status="failed", skipped="it was skipped") == ("rejected", ())


def test_a_phase_that_is_left_out_is_passed_over():
    """Skipped, or its condition not met: nothing, and the reason is told."""
    assert next_action(facts(None, None, status="pending", skipped="it was skipped")) == NextAction(
        "nothing", (), "it was skipped", "skipped"
    )
    assert step(STALE, STALE_REVISED, skipped="its condition is not met: x") == ("nothing", ())


@pytest.mark.parametrize(
    ("b", "c", "status", "agents"),
    [
        (None, None, "pending", ("b", "c")),
        (OWN, None, "in_progress", ("c",)),
        (OWN, None, "completed", ("c",)),
        (OWN, FAILED, "failed", ("c",)),
        (OWN, FAILED, "completed", ("c",)),
        (STALE, None, "completed", ("c",)),
        (OWN, REPAIRED, "failed", ()),
        (REVISED, OWN, "requires_retry", ()),
    ],
)
def test_agents_without_a_completed_output_run(b, c, status, agents):
    """Not completed, or an output missing: just those agents; a failed output that a person repaired counts."""
    assert step(b, c, status=status) == ("run", agents)
    assert step(b, c, status=status, feedback=review("approved")) == ("run", agents)
    assert step(b, c, status=status, feedback=review("changes")) == ("run", agents)


@pytest.mark.parametrize(
    ("b", "c", "run", "wanted"),
    [
        (UNWRITTEN, None, "parallel", ("run", ("c",))),
        (UNWRITTEN, FAILED, "parallel", ("run", ("c",))),
        (UNWRITTEN, OWN, "parallel", ("write", ("b",))),
        (UNWRITTEN, UNWRITTEN, "parallel", ("write", ("b", "c"))),
        (UNWRITTEN, None, "sequential", ("write", ("b",))),
        (OWN, UNWRITTEN, "sequential", ("write", ("c",))),
        (FAILED, UNWRITTEN, "sequential", ("run", ("b",))),
        (WRITTEN, None, "sequential", ("run", ("c",))),
        (WRITTEN, OWN, "parallel", ("run", ())),
        (replace(UNWRITTEN, current_task="k2"), OWN, "parallel", ("run", ("b",))),
        (replace(WRITTEN, current_task="k2"), OWN, "parallel", ("run", ())),
    ],
)
def test_a_page_that_a_person_has_to_write_waits_for_them(b, c, run, wanted):
    """Nobody is asked for it again; others run first, but for those behind it in a sequence; written, it counts."""
    assert step(b, c, status="in_progress", phase=replace(PHASE, run=run)) == wanted


@pytest.mark.parametrize("status", ["pending", "in_progress", "failed", "skipped", "requires_retry"])
def test_what_a_person_wrote_counts_whatever_its_status_line_says(status):
    """No agent is asked for a text that could not be stored over theirs."""
    assert step(replace(REVISED, status=status), OWN) == ("gate", ())


def test_a_repaired_output_opens_the_gate():
    """Once the phase is saved as completed, a failed output that a person revised waits for review."""
    assert step(OWN, REPAIRED) == ("gate", ())


def test_changes_wanted_start_the_next_attempt():
    """Changes wanted, for this attempt: all agents, whatever is stale or revised."""
    assert step(feedback=review("changes")) == ("next attempt", ("b", "c"))
    assert step(STALE, STALE_REVISED, feedback=review("changes")) == ("next attempt", ("b", "c"))


@pytest.mark.parametrize("decision", ["approved", "changes", "rejected"])
def test_a_decision_counts_only_for_the_attempt_it_names(decision):
    """A decision on an earlier or a later attempt is none."""
    assert step(feedback=review(decision, attempt=1), attempt=2) == ("gate", ())
    assert step(feedback=review(decision, attempt=3), attempt=2) == ("gate", ())


def test_a_stale_text_of_an_agent_runs_again():
    """An output stale, agent's text: that agent, and no other; the reason names what changed."""
    assert step(STALE, OWN) == ("run again", ("b",))
    assert step(STALE, STALE_REVISED, feedback=review("approved")) == ("run again", ("b",))
    assert "phase 1: a" in next_action(facts(STALE, OWN)).reason


def test_a_stale_text_of_a_person_is_never_run_over():
    """An output stale, revised: the gate opens, and the reason says what changed below it."""
    verdict = next_action(facts(OWN, STALE_REVISED, feedback=review("approved", c=REVISED)))
    assert (verdict.action, verdict.agents) == ("gate", ("c",))
    assert "phase 1: a" in verdict.reason
    assert "revised" in verdict.reason


def test_an_approval_keeps_a_revised_text_on_new_ground():
    """Approved on the ground that is there now: not stale any more, until text or ground change again."""
    accepted = review("approved", c=STALE_REVISED)
    assert step(OWN, STALE_REVISED, feedback=accepted) == ("approved", ())
    assert step(OWN, replace(STALE_REVISED, current_task="k3"), feedback=accepted) == ("gate", ("c",))
    assert step(OWN, replace(STALE_REVISED, text="other"), feedback=accepted) == ("gate", ("c",))


def test_a_text_that_changed_since_it_was_approved_is_presented_again():
    """Decided on a text that has changed since: its gate opens again; so with one that came or went."""
    assert step(REVISED, OWN, feedback=review("approved")) == ("gate", ())
    assert step(feedback=replace(review("approved"), texts={"b": "t"})) == ("gate", ())


def test_an_open_gate_stops():
    """No decision: the gate is open, with feedback or without; with `review: none`, only where there is feedback."""
    assert step() == step(feedback=review(None)) == ("gate", ())
    assert step(feedback=review(None), phase=UNASKED) == ("gate", ())


def test_what_is_approved_goes_on():
    """Approved on these texts, or no review asked for: on to the next phase."""
    assert step(feedback=review("approved")) == ("approved", ())
    assert step(REVISED, OWN, feedback=review("approved", b=REVISED)) == ("approved", ())
    assert step(phase=UNASKED) == step(REVISED, phase=UNASKED) == ("approved", ())


@pytest.mark.parametrize(
    ("output", "feedback", "stale"),
    [
        (OWN, None, False),
        (replace(OWN, task=None, current_task=""), None, False),
        (STALE, None, True),
        (STALE, review(None, b=STALE), True),
        (STALE, review("changes", b=STALE), True),
        (STALE, review("approved", b=STALE), False),
        (STALE, review("approved", b=STALE_REVISED), True),
        (STALE, review("approved"), True),
    ],
)
def test_an_output_is_stale_by_its_task(output, feedback, stale):
    """Stale: the task it would get now is neither the one on record nor one that an approval of this text accepted."""
    assert ("b" in facts(output, feedback=feedback).stale) is stale


def test_an_output_is_stale_while_a_phase_it_needs_is():
    """Stale: a phase that it needs is, too; also where its own task is the same, or was accepted by an approval."""
    needing = facts(OWN, REVISED, feedback=review("approved", c=REVISED), stale_needs=(1,))
    assert needing.stale == ("b", "c")
    assert next_action(needing) == NextAction(
        "run again", ("b",), "what it builds on has changed (phase 1 is stale)", "stale"
    )
    assert step(REVISED, REVISED, stale_needs=(1,))[0] == "gate"


def test_what_a_program_saved_is_never_stale_and_taken_at_its_word():
    """Without recorded tasks the status counts, also without outputs, and there is a gate only where feedback is."""
    saved = replace(OWN, task=None, current_task="")
    given = {"by_program": True, "stale_needs": (1,)}
    assert step(None, None, **given) == step(saved, saved, **given) == ("approved", ())
    assert step(saved, saved, feedback=review(None, saved, saved), **given) == ("gate", ())
    assert step(saved, None, status="failed", **given) == ("run", ("c",))


def test_an_output_that_is_on_record_and_gone_runs_again():
    """A completed phase of a program whose reviewed output was deleted runs that agent again."""
    saved = replace(OWN, task=None, current_task="")
    assert step(saved, None, by_program=True, lost=("c",)) == ("run", ("c",))
