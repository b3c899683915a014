"""Pages that keep the contracts of the templates, as a model or a team would write them; an agent answers with them."""

from __future__ import annotations

PAGES = {
    "problem": """
## The problem

On 3 May the hotfix for the login waited 50 minutes for its image, and customers could not log in for as long.

## What shows it

| Observation | Source |
| --- | --- |
| A build takes 48 minutes | CI run 8123, 3 May |

## Goals

- A hotfix is live ten minutes after its merge.

## Not here

- Faster tests.

## If nothing is done

Four hotfixes a year wait for an hour each, as last year (incident list, 2025).
""",
    "options": """
## The options

| Option | How | Gains | Takes away | Effort (days) | Derived from |
| --- | --- | --- | --- | --- | --- |
| Do nothing | Nothing changes. | No goal | Nothing | 0 | CI run 8123 |
| Cache layers | Builds reuse layers. | The goal | Fresh base images | 3 | the cache of the web build, March |
""",
    "objections": """
## The objections

| Option | Objection | What would answer it | Standing | Source |
| --- | --- | --- | --- | --- |
| Do nothing | The next outage is as long | Ask support what it cost | open | incident list, 2025 |
| Cache layers | A stale base image goes unnoticed | A nightly build without it | answered | nightly job of the web |
""",
    "decision": """
## The decision

- We choose: Cache the layers of images in CI.
- Because: A hotfix then waits eight minutes (trial of 4 May).
- We turn back if: two builds in June take more than 20 minutes.
- Ready: yes

## Open questions

| Question | Who answers it | Blocks the start | Answer so far |
| --- | --- | --- | --- |
| What did the last outage cost? | support | no | |

## Not chosen

| Option | Why not |
| --- | --- |
| Do nothing | It meets none of the goals. |

## What changes for others

- Base images are a day old at most.

## First steps

- Cache the login image, and measure ten builds.
""",
    "timeline": """
## Events

- 2026-05-03 09:00 UTC: the time-out was raised to 60 s (commit 58f7b04)
- 2026-05-03 09:20 UTC: a customer wrote that the login hangs (ticket 411)
""",
    "causes": """
## Impact

- Began: 2026-05-03 09:02 UTC
- Noticed: 09:20 UTC, by a customer
- Ended: 10:05 UTC
- Affected: everybody who logged in, 312 people (log of the gateway)

## What happened

The time-out was raised so that reports finish. The login shares it: its threads waited for a minute each, until none
was left. A customer wrote, and the change was taken back.

## The causes

| Cause | Kind | Shown by |
| --- | --- | --- |
| One time-out for all calls | weakness | commit 58f7b04 |
| The time-out was raised | trigger | event at 09:00 |

## What went well

- The change was taken back by one commit.
""",
    "actions": """
## The actions

| Cause | Action | Kind | Owner | Due | Done when | State |
| --- | --- | --- | --- | --- | --- | --- |
| One time-out for all calls | A time-out for the login | prevent | login team | 1 June | a test has it | agreed |
| The time-out was raised | Alert if threads wait | detect | operations | 8 June | it fired once | dropped |

## Outcome

- Agreed: yes

## What we learned

A value that everybody shares cannot be changed for one.
""",
}


def answer(task):
    """Answer with the page of the agent."""
    return PAGES[task.agent].strip() + "\n"
