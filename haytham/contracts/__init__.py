"""Contracts: what must be in a reply, read from a schema in the manner of document kinds; any other text is welcome.

Pure: a contract says what is wrong with a text, what values stand in it, and how the page looks before it is filled in.
"""

from haytham.contracts.definition import Contract, load_contract, parse_contract

__all__ = ["Contract", "load_contract", "parse_contract"]
