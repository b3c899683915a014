"""Contracts: what a reply must have, defined by a JSON schema; other text around it is allowed.

Pure: a contract reports what is wrong with a text, reads its values, and renders the page before it is filled in.
"""

from haytham.contracts.definition import Contract, load_contract, parse_contract

__all__ = ["Contract", "load_contract", "parse_contract"]
