"""What all tests share."""

from __future__ import annotations

import os


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: ten times as many rounds where HAYTHAM_SOAK is set (make soak)")


def rounds(full):
    """How many rounds a long test goes: all where HAYTHAM_SOAK is set, else a tenth."""
    return full if os.environ.get("HAYTHAM_SOAK") else full // 10
