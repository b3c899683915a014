"""Text that attacks the formats, and values of every kind made of it. A hostile input found once joins for ever."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import strategies as st

from haytham.markdown.schema import load_schema

KINDS = sorted(
    path.stem
    for path in (Path(__file__).parent.parent.parent / "schemas").glob("*.json")
    if "x-kind" in json.loads(path.read_text(encoding="utf-8"))
)

FRAGMENTS = [
    "",
    " ",
    "-",
    "- ",
    "\n",
    "\n\n",
    "\t",
    "\r",
    "\r\n",
    "\x00",
    "\x0b",
    "\x1b[31m",
    "\x85",
    "\u2028",
    "\u2029",
    "\u202e",
    "\u200b",
    "\ufeff",
    "\ufffe",
    "\U0001f600",
    "e\u0301",
    "---",
    "---\n",
    "===",
    "```",
    "```\n",
    "~~~",
    "````text",
    "<!--",
    "-->",
    "<script>",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "{#",
    "|",
    "\\",
    "\\\\",
    "\\|",
    "\\[",
    "`",
    "``",
    '`"x"`',
    '`""`',
    '`"',
    "[",
    "]",
    "[a, b]",
    ", ",
    ": ",
    ":",
    "&amp;",
    "*a*",
    "_a_",
    "a_b",
    "~~a~~",
    "# ",
    "## ",
    "##",
    "1. a",
    "+ a",
    "haytham: checkpoint/1",
    "newlines: kept",
    "null",
    "true",
    "~",
    "$1",
    "1s",
    "nan",
    "http://a.b/c_d",
    "a@b.co",
    "é",
    "日本",
    "عربي",
    "हिन्दी",
]
HEADINGS = sorted({section.name for kind in KINDS for section in load_schema(kind).sections})
FRAGMENTS += [f"## {name}" for name in HEADINGS]
FRAGMENTS += [f"\n## {name}\n" for name in HEADINGS]
FRAGMENTS += [f"\\## {name}" for name in HEADINGS[:3]]
FRAGMENTS += [f"```\n## {name}\n```" for name in HEADINGS[:3]]
CONFLICT = "<<<<<<< HEAD\nmine\n=======\nhis\n>>>>>>> other\n"
FRAGMENTS += [
    CONFLICT,
    f"\n{CONFLICT}",
    f"\n\\{CONFLICT}",
    "\n<<<<<<< a\n",
    "\n=======\n",
    "\n\\=======\n",
    "\n>>>>>>> b\n",
]
FRAGMENTS += [f"{HEADINGS[0]}\n---\n", f"  ##  {HEADINGS[0]}  ##  ", "- Status: completed", "- Session ID: x"]

characters = st.characters(exclude_categories=("Cs",))
texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(characters, max_size=8), max_size=6).map("".join)
lines = texts.map(lambda text: "".join(c for c in text if c.isprintable() or c in "\u202e\u200b\ufeff")).filter(bool)
times = st.datetimes().map(lambda moment: moment.isoformat() + "Z")
digests = st.binary(min_size=32, max_size=32).map(lambda data: "sha256:" + data.hex())
counts = st.integers(min_value=0, max_value=10**15)
amounts = st.floats(min_value=0, max_value=1e15, allow_nan=False) | counts
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def values(kind_name):
    """Values of a kind, every field of it under attack."""
    kind = load_schema(kind_name)
    schema = kind.schema
    required = {name: field_values(about) for name, about in schema["properties"].items() if name in schema["required"]}
    optional = _optional_groups(kind)
    groups = [st.just({}) | st.fixed_dictionaries(group) for group in optional]
    together = st.tuples(st.fixed_dictionaries(required), *groups)
    whole = together.map(lambda parts: {name: content for part in parts for name, content in part.items()})
    return whole.filter(lambda value: _holds_together(value, schema.get("dependentRequired", {})))


def _holds_together(value, needs):
    return all(set(needed) <= value.keys() for name, needed in needs.items() if name in value)


def _optional_groups(kind):
    """Optional fields, those of one section together: a section is there as a whole or not at all."""
    groups = {}
    for field in kind.fields:
        if not field.derived and not field.required:
            key = field.name if field.section == "---" else field.section
            groups.setdefault(key, {})[field.name] = field_values(kind.schema["properties"][field.name])
    return list(groups.values())


money = st.integers(0, 10**9).map(lambda micros: f"{micros / 1_000_000:.6f}") | st.just("0")


def field_values(about):
    """Values that a field's schema allows."""
    if "type" not in about:
        return plain_values
    kinds = about["type"]
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return st.one_of([_of_type(kind, about) for kind in kinds])


def _of_type(kind, about):  # noqa: PLR0911 - one return a type
    if "enum" in about:
        return st.sampled_from(about["enum"])
    if kind == "null":
        return st.none()
    if kind == "boolean":
        return st.booleans()
    if kind == "integer":
        return st.integers(min_value=about.get("minimum", 0), max_value=about.get("maximum", 2**70))
    if kind == "number":
        return amounts
    if kind == "array":
        return st.lists(field_values(about["items"]), min_size=about.get("minItems", 0), max_size=3)
    if kind == "object" and "properties" in about:
        return st.fixed_dictionaries({name: field_values(cell) for name, cell in about["properties"].items()})
    if kind == "object":
        return st.dictionaries(texts, plain_values, max_size=3)
    return {"line": lines, "time": times, "digest": digests, "json": plain_values.map(json.dumps), "money": money}.get(
        about.get("format"), texts
    )


def shown_values(kind_name):
    """Values of what a kind only shows."""
    schema = json.loads(
        (Path(__file__).parent.parent.parent / "schemas" / f"{kind_name}.json").read_text(encoding="utf-8")
    )
    shown = {name: about for name, about in schema["properties"].items() if about.get("x-derived")}
    made = {name: _shown(about) for name, about in shown.items()}
    return st.fixed_dictionaries({**made, "phase_name": lines, "agent_title": lines})


def _shown(about):
    if about.get("type") == "object":
        return st.dictionaries(lines, texts, max_size=3)
    return field_values(about)
