"""What all tests share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

SOAK = bool(os.environ.get("HAYTHAM_SOAK"))

# `make test` tries the same examples every time, so that it fails for a change and not by chance; `make soak` searches.
settings.register_profile("haytham", derandomize=not SOAK, deadline=None, print_blob=True)
settings.load_profile("haytham")


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: ten times as many rounds where HAYTHAM_SOAK is set (make soak)")
    config.addinivalue_line("markers", "slow: left out by make check (tests/slow_tests.txt)")


def pytest_collection_modifyitems(items):
    slow = set((Path(__file__).parent / "slow_tests.txt").read_text(encoding="utf-8").split())
    for item in items:
        if {item.path.name, f"{item.path.name}::{getattr(item, 'originalname', item.name)}"} & slow:
            item.add_marker(pytest.mark.slow)


def rounds(full):
    """How many rounds a long test goes: all where HAYTHAM_SOAK is set, else a tenth."""
    return full if SOAK else full // 10


@pytest.fixture
def here(second_gate, tmp_path):
    """A copy of the folder with a session that a module of tests made once, to be changed at will."""
    return Path(shutil.copytree(second_gate, tmp_path / "here"))
