"""Templates from elsewhere: they are rendered as Jinja renders them, and can at worst be refused, quickly."""

from __future__ import annotations

import time

import pytest
from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from haytham.sandbox import TemplateFault, holds, inspect, inspect_condition, render

STEPS, CHARACTERS = "the limit of 100,000 steps", "the limit of 10,000,000 characters"
WIDTH, NUMBER, NESTED = "allowed: up to 1000", "a whole number is beyond 10**15", "nested"
BIG = "{% set b = 'a' * 2000000 %}{% set c = 'a' * 2000000 %}{% for i in range(9999) %}"
GROWING = "{% set ns = namespace(x='a') %}{% for i in range(99) %}"
HOSTILE = {
    "nested loops": ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", STEPS),
    "a loop that takes nothing": ("{% for i in range(60000) if false %}{% endfor %}" * 2, STEPS),
    "a recursive loop": ("{% for i in range(10) recursive %}{{ loop(range(10)) }}{% endfor %}", NESTED),
    "a long recursive loop": (
        "{% for i in [1] recursive %}{% if loop.depth < 3 %}{{ loop(range(60000)) }}{% endif %}{% endfor %}",
        STEPS,
    ),
    "a long loop body": ("{% for i in range(40000) %}" + "{% set a = i %}" * 500 + "{% endfor %}", STEPS),
    "a long macro": (
        "{% macro m() %}" + "{% set a = 1 %}" * 500 + "{% endmacro %}{% for i in range(9999) %}{{ m() }}{% endfor %}",
        STEPS,
    ),
    "a macro that calls itself": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NESTED),
    "a block that calls itself": ("{% block a %}{{ self.a() }}{% endblock %}", NESTED),
    "doubling calls": (
        "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}" + "{% call m() %}" * 25 + "{% endcall %}" * 25,
        NESTED,
    ),
    "repetition": ("{{ 'a' * 10**11 }}", CHARACTERS),
    "repetition of a list": ("{{ 10**9 * [1] }}", STEPS),
    "powers": ("{{ 9**(9**(9**9)) }}", NUMBER),
    "a long number": ("{{ 0x" + "f" * 100_000 + " }}", NUMBER),
    "numbers with one hash": ("{{ range(0, 2305843009213693951 * 50000, 2305843009213693951)|unique|list }}", NUMBER),
    "percent": ("{{ '%999999999d' % 1 }}", WIDTH),
    "percent, precise": ("{{ '%.999999999f' % 1 }}", WIDTH),
    "percent, width given": ("{{ '%*d' % (999999999, 1) }}", WIDTH),
    "percent, odd name": ("{{ '%(a(b))999999999d' % {'a(b)': 1} }}", "bracket"),
    "percent, many times": ("{{ ('%(a)s' * 3000) % {'a': 'a' * 1000000} }}", CHARACTERS),
    "format": ("{{ '{:999999999}'.format(1) }}", WIDTH),
    "format, width given": ("{{ '{:{}}'.format(1, 999999999) }}", WIDTH),
    "format, other digits": ("{{ '{:\u0669\u0669\u0669\u0669\u0669\u0669}'.format(1) }}", WIDTH),
    "format, many times": ("{{ ('{0}' * 3000).format('a' * 1000000) }}", CHARACTERS),
    "format as a filter": ("{{ '%999999999d'|format(1) }}", WIDTH),
    "format found by name": ("{{ ('{:999999999}'|attr('format'))(1) }}", WIDTH),
    "center": ("{{ 'a'|center(10**9) }}", CHARACTERS),
    "center, by its name": ("{{ 'a'|center(width=10**9) }}", CHARACTERS),
    "center within map": ("{{ ['a']|map('center', 10**9)|list }}", CHARACTERS),
    "padding": ("{{ 'a'.ljust(10**9) }}", CHARACTERS),
    "zeros": ("{{ 'a'.zfill(10**9) }}", CHARACTERS),
    "tabs": ("{{ '\t'.expandtabs(10**9) }}", CHARACTERS),
    "indent": ("{{ 'a\nb'|indent(10**9) }}", "indented by more than 1000"),
    "indent with a text": ("{{ ('a\n' * 100000)|indent('x' * 1000) }}", CHARACTERS),
    "join": ("{{ range(9999)|join('x' * 100000) }}", CHARACTERS),
    "join of a text": ("{{ ('x' * 100000).join(['a'] * 10000) }}", CHARACTERS),
    "replace": ("{{ ('a' * 100000)|replace('a', 'b' * 10000) }}", CHARACTERS),
    "replace between all": ("{{ ('a' * 1000000).replace('', 'b' * 10000) }}", CHARACTERS),
    "ranges in filters": ("{% for i in range(9999) %}{{ range(9999)|sum }}{% endfor %}", STEPS),
    "a range in a test": ("{{ range(9999)|select('in', range(9999)|list)|list }}", STEPS),
    "a long range": ("{{ range(10**9)|last }}", STEPS),
    "batch": ("{{ [1]|batch(10**9, 0)|list }}", STEPS),
    "slice": ("{{ [1]|slice(10**9)|list }}", STEPS),
    "sum of lists": ("{{ [[1], [2]]|sum(start=[]) }}", "sum adds numbers"),
    "rounding": ("{{ 5|round(-10**9) }}", "more than 100 digits"),
    "json": ("{{ [1]|tojson(indent=10**9) }}", "allowed: 0 to 10"),
    "a tilde in a loop": (GROWING + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}", CHARACTERS),
    "a plus in a loop": (GROWING + "{% set ns.x = ns.x + ns.x %}{% endfor %}", CHARACTERS),
    "set in a loop": (
        GROWING + "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
        CHARACTERS,
    ),
    "lists in lists": (GROWING + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", STEPS),
    "a deep list": (GROWING + "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", NESTED),
    "tuples as keys": (GROWING + "{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}", STEPS),
    "namespaces in namespaces": (
        GROWING + "{% set ns.x = namespace(a=ns.x, b=ns.x) %}{% endfor %}{{ [ns.x] }}",
        "namespace",
    ),
    "cycler": ("{% set c = cycler('a' * 100000) %}{% for i in range(9999) %}{{ c.next() }}{% endfor %}", CHARACTERS),
    "lipsum": ("{{ lipsum(n=10**9) }}", "'lipsum' is undefined"),
    "plain text in a loop": ("{% for i in range(20000) %}" + "x" * 5000 + "{% endfor %}", CHARACTERS),
    "output in a loop": (BIG + "{{ b }}{% endfor %}", CHARACTERS),
    "comparing long texts": (BIG + "{{ b == c }}{% endfor %}", CHARACTERS),
    "testing long texts": (BIG + "{{ b is eq(c) }}{% endfor %}", CHARACTERS),
    "looking in long texts": (BIG + "{{ 'b' in b }}{% endfor %}", CHARACTERS),
    "copying long texts": (BIG + "{% set y = b[1:] %}{% endfor %}", CHARACTERS),
    "changing long texts": (BIG + "{% set y = b.upper() %}{% endfor %}", CHARACTERS),
    "stripping many characters": ("{{ ('a' * 1000000).strip('b' * 500000 ~ 'a') }}", "allowed: up to 100"),
    "splitting": ("{{ ('a ' * 1000000).split()|length }}", STEPS),
    "lines": ("{{ ('a\n' * 1000000).splitlines()|length }}", STEPS),
    "letters": ("{{ ('a' * 1000000)|list|length }}", STEPS),
    "brackets": ("{{ " + "(" * 50_000 + " }}", NESTED),
    "many ifs": ("{% if 1 %}" * 200 + "{% endif %}" * 200, NESTED),
    "many signs": ("{{ 1 " + "+ 1" * 50_000 + " }}", "more than 5,000 words and signs"),
    "a long template": ("x" * 300_000, "300,000 characters; allowed: 250,000"),
    "include": ("{% include 'prompt.md.j2' %}", "include cannot be used here"),
    "import": ("{% import 'prompt.md.j2' as p %}", "import cannot be used here"),
    "extends": ("{% extends 'prompt.md.j2' %}", "extends cannot be used here"),
    "autoescape": ("{% autoescape true %}{% endautoescape %}", "autoescape cannot be used here"),
    "a list that changes": ("{% set x = [] %}{{ x.append(x) }}", "unsafe"),
    "bytes": ("{{ (1).to_bytes(10**9) }}", "unsafe"),
    "a class": ("{{ ''.__class__.__mro__ }}", "unsafe"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_template_that_does_too_much_is_refused_at_once(name):
    """Loop turns, calls, operators, ranges and sizes of texts are counted: past the limit, rendering ends."""
    template, said = HOSTILE[name]
    begun = time.process_time()
    with pytest.raises(TemplateFault) as refused:
        render(template, {})
    assert said in str(refused.value)
    assert time.process_time() - begun < 2


ORDINARY = r"""
{% for i in range(3) %}{{ loop.index }}{{ 'x' if loop.last }}{{ loop.length }}{{ loop.cycle('a', 'b') }}{% endfor %}
{% for i in [] %}{% else %}none{% endfor %}{% for i in range(9) if i is odd %}{{ i }}{% endfor %}
{% macro m(a, b=2) %}[{{ a }}{{ b }}{{ varargs }}]{% endmacro %}{{ m(1) }}{{ m(b=3, a=1) }}{{ m(1, 2, 3) }}
{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in{% endcall %}
{% set x, y = 1, 2 %}{{ x + y }}{{ {'a': 1}.a }}{{ {'a': 1}['a'] }}{{ [1, 2, 3][1:] }}{{ 'abc'[::-1] }}{{ 'abc'[1] }}
{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' in 'abc' }}{{ 'z' not in ['a'] }}{{ 'a' ~ 1 ~ none ~ [1] }}
{{ '%s-%05.1f %%' % ('a', 2) }}{{ '%(k)s' % {'k': 'v'} }}{{ '%s' % [1] }}{{ '{} {a!r:>5}'.format(1, a='x') }}
{{ 'a,b'.split(',')|join('+') }}{{ {'b': 1, 'a': 2}|dictsort }}{{ [3, 1]|sort(reverse=true) }}
{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}{{ {'x': 1}.get('y', 3) }}{{ 'x,y'.partition(',') }}
{% filter upper %}abc{% endfilter %}{% set z %}q{{ 1 }}{% endset %}{{ z }}{% with a=1 %}{{ a }}{% endwith %}
{{ [{'a': 1}, {'a': 2}]|map(attribute='a')|list }}{{ [1, 2]|sum }}{{ 'a b'|title }}{{ 'a b c'|wordcount }}
{% for i in [[1, [2]], [3]] recursive %}({{ loop(i) if i is iterable else i }}){% endfor %}
{{ [1, 2, 3]|batch(2)|list }}{{ [1, 2, 3]|slice(2)|list }}{{ nothing|default('y') }}{{ nothing is defined }}
{% set ns = namespace(a=1) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}
{{ 'a\nb'|indent(2) }}{{ 'a\nb'|indent('> ', true) }}{{ 'ab'|center(6) }}{{ 'aba'|replace('a', 'c', 1) }}
{{ 2.567|round(1) }}{{ 42.55|round(1, 'floor') }}{{ '3'|int + 1 }}{{ {'a': [1]}|tojson(indent=2) }}
{{ 'the quick fox'|truncate(9) }}{{ [1, 1, 2]|unique|list }}{{ [1, 2]|reverse|list }}{{ ' a '|trim }}
{% for g in [{'n': 'x'}]|groupby('n') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}{{ ' x'.strip() }}
{% set c = cycler('o', 'e') %}{{ c.next() }}{{ c.current }}{% set j = joiner(',') %}{{ j() }}{{ j() }}{{ dict(a=1) }}
{{ 'a' * 3 }}{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 5 }}{{ 7 / 2 }}{{ -3 }}{{ 10 ** -2 }}{{ not true }}{{ 'x'|safe }}
  {% block b %}block{% endblock %}{{ self.b() }}{# note #}{% raw %}{{ x }}{% endraw %}
"""


def test_an_ordinary_template_is_rendered_as_jinja_does():
    """Whatever is counted, the text that comes out is the one that Jinja's own sandbox makes."""
    known = {"undefined": StrictUndefined, "keep_trailing_newline": True, "trim_blocks": True, "lstrip_blocks": True}
    assert render(ORDINARY, {}) == SandboxedEnvironment(**known).from_string(ORDINARY).render()


@pytest.mark.parametrize(
    "expression",
    [
        "own + '<'",
        "'<' + own",
        "own ~ '<'",
        "own * 2 + '<'",
        "own % '<'",
        "own|format('<')",
        "own.format('<')",
        "own|replace('%s', '<')",
        "own.replace('%s', '<')",
        "own.join(['<', '>'])",
        "['<', own]|join(own)",
        "'long texts'|truncate(3, true, '<')",
        "own|truncate(3, true, '<', 0)",
        "own|indent('<', true)",
    ],
)
def test_nothing_is_escaped_for_html(expression):
    """A text that a block or a macro made can be put together with others, and what comes out is Markdown."""
    told = render("{% set own %}a %s {} b{% endset %}{{ " + expression + " }}", {})
    assert "<" in told
    assert "&" not in told


def test_long_inputs_are_rendered():
    """Texts of a megabyte are indented, trimmed and written without reaching a limit."""
    texts = [f"{number} " + "word " * 20_000 for number in range(10)]
    told = render(
        "{% for text in texts %}## {{ loop.index }}\n{{ text|trim|indent(2) }}\n{% endfor %}", {"texts": texts}
    )
    assert told.count("word") == 200_000


def test_values_cannot_be_changed():
    """A template reads what it is given; methods that change a list or a map are refused."""
    state = {"a": [1]}
    for template in (
        "{{ state.clear() }}",
        "{{ state.a.append(2) }}",
        "{{ state.pop('a') }}",
        "{{ state.update({}) }}",
    ):
        with pytest.raises(TemplateFault):
            render(template, {"state": state})
    assert state == {"a": [1]}


def test_functions_of_what_is_given_are_not_called():
    """A template calls its own macros and what it is given for that, and nothing else."""
    called = []
    with pytest.raises(TemplateFault, match="cannot be called here"):
        render("{{ act() }}", {"act": lambda: called.append(1)})
    assert called == []


@pytest.mark.parametrize(
    "condition",
    ["9**(9**(9**9)) > 1", "2 ** 2 == 4", "range(9999)|sum > 1", "'a' * 10**9 == 'b'", "phases.one ** 2"],
)
def test_a_condition_that_does_too_much_is_refused_at_once(condition):
    """A condition has small limits, as it is computed at every look; it has no powers at all."""
    begun = time.process_time()
    with pytest.raises(TemplateFault):
        holds(condition, {"phases": {"one": 2}})
    assert time.process_time() - begun < 1


KNOWN = {"idea": None, "task": {"phase": None, "inputs": None}}


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("one\n{{ ideea }}", (2, "unknown name ideea; did you mean idea?")),
        ("{{ zzz }}", (1, "unknown name zzz; known: idea, task")),
        ("{{ task.inptus }}", (1, "task has no inptus; did you mean inputs?")),
        ("{{ task['phas'] }}", (1, "task has no phas; did you mean phase?")),
        ("\n\n{{ idea|uper }}", (3, "unknown filter uper; did you mean upper?")),
        ("{% if idea is strng %}{% endif %}", (1, "unknown test strng; did you mean string?")),
        ("one\n{% if %}", (2, "TemplateSyntaxError: Expected an expression, got 'end of statement block'")),
        ("{% if false %}{{ nobody }}{% endif %}", (1, "unknown name nobody; known: idea, task")),
    ],
)
def test_faults_of_a_template_are_found_without_rendering_it(template, said):
    """Wrong syntax, unknown variables, attributes, filters and tests are named with their line."""
    assert [(fault.line, fault.message) for fault in inspect(template, KNOWN)] == [said]


@pytest.mark.parametrize(
    "template",
    [
        "{{ idea }}{{ task.phase }}{% for one in task.inputs %}{{ one.text }}{{ loop.index }}{% endfor %}",
        "{% set mine = 1 %}{{ mine }}{% macro m(a) %}{{ a }}{{ caller() }}{% endmacro %}{{ range(3)|list }}",
        "{{ nobody|default('x') }}{% if nothing is defined %}{{ nothing }}{% endif %}",
    ],
)
def test_a_sound_template_has_no_faults(template):
    """Names that are given, set, or asked for before they are used are no faults."""
    assert inspect(template, KNOWN) == []


def test_faults_of_a_condition_are_found_without_computing_it():
    """Names, syntax and powers of a condition are checked."""
    known = {"phases": {"one": {"status": None}}}
    assert inspect_condition("phases.one.status == 'x' and phases['one'].status", known) == []
    assert "phases has no too" in inspect_condition("phases.too.status", known)[0].message
    assert "phases.one has no state; did you mean status?" in inspect_condition("phases.one.state", known)[0].message
    assert "unknown name phase" in inspect_condition("phase.one", known)[0].message
    assert "** cannot be used" in inspect_condition("2 ** 2", known)[0].message
    assert "TemplateSyntaxError" in inspect_condition("1 +", known)[0].message
