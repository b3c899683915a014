"""A workflow built in Python, with an async function as an agent: run, read, approve, complete.

Usage: python examples/python_workflow.py     (writes to projects/)
"""

from __future__ import annotations

from haytham import Phase, Task, Workflow, Workspace


async def research(task: Task) -> str:
    """Answer as an agent does: a Task in, text or a Reply out."""
    return f"# Market\n\n{task.idea}: 14,000 gardens."


workflow = Workflow(
    "offer",
    phases=[
        Phase("Concept", agents=["worksheet"], review="none"),
        Phase("Market", agents=[research], needs=["Concept"]),
    ],
)
session = Workspace("projects").start("Lend rain barrels", workflow=workflow, user="ann")
result = session.run()  # run_async() inside a loop
print(result)
print(session.output("research").text)
session.approve(comment="Go on.")  # the same as `haytham approve`: decision, event, snapshot
result = session.run()
print(result)
