"""Draw the golden files of effects anew: run it after a change of what a command does, and review the difference."""

from __future__ import annotations

import sys
from tempfile import TemporaryDirectory

from support.effect_scenarios import ALL
from support.effects import GOLDEN, Workspaces, effects

if __name__ == "__main__":
    wanted = set(sys.argv[1:]) or {scenario.name for scenario in ALL}
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for path in GOLDEN.glob("*.txt"):
        if path.stem not in {scenario.name for scenario in ALL}:
            path.unlink()
    with TemporaryDirectory() as folder:
        workspaces = Workspaces(folder)
        for scenario in ALL:
            if scenario.name in wanted:
                scenario.golden.write_bytes(effects(workspaces, scenario).text(scenario).encode())
