"""Agents and their adapters, one module each, imported when a model string names it."""
