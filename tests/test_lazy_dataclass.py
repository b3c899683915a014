"""A lazy dataclass is a standard dataclass, except that its methods are generated when it is first used."""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError, field, fields, replace
from threading import Barrier, Thread
from typing import Generic, TypeVar
from unittest.mock import patch

import pytest

from haytham.lazy_dataclass import dataclass

T = TypeVar("T")


def point():
    """Return a new class of two fields, not used yet, and one that extends it."""

    @dataclass(frozen=True)
    class Point:
        x: int
        y: int = 0
        tags: list[str] = field(default_factory=list)

    @dataclass(frozen=True, kw_only=True)
    class Named(Point):
        name: str = "origin"

    return Point, Named


def test_methods_are_those_of_the_standard_decorator():
    """Construction, comparison, representation and replacement work as for a standard dataclass."""
    kind, _ = point()
    value = kind(1, y=2)
    assert (value.x, value.y, value.tags) == (1, 2, [])
    assert value == kind(1, 2)
    assert value != kind(1, 3)
    assert repr(value).endswith("Point(x=1, y=2, tags=[])")
    assert replace(value, x=5) == kind(5, 2)
    assert kind(1).tags is not kind(1).tags


def test_a_frozen_value_stays_frozen():
    """Assigning to a field of a frozen value raises, and equal values have equal hashes."""
    kind = dataclass(frozen=True)(type("Pair", (), {"__annotations__": {"a": "int"}}))
    value = kind(1)
    with pytest.raises(FrozenInstanceError):
        value.a = 2
    assert len({value, kind(1)}) == 1


def test_fields_can_be_left_out_of_comparison_hash_and_representation():
    """A field counts in ==, hash and repr as its definition says."""

    @dataclass(frozen=True)
    class Entry:
        key: str
        note: str = field(default="", compare=False, repr=False)
        extra: dict[str, int] = field(default_factory=dict, hash=False)

    assert Entry("a", "x") == Entry("a", "y")
    assert hash(Entry("a")) == hash(Entry("a", extra={"b": 1}))
    assert Entry("a") != Entry("a", extra={"b": 1})
    assert repr(Entry("a", "x")).endswith("Entry(key='a', extra={})")


def test_a_value_that_can_change_has_no_hash():
    """An object of a class that is not frozen can be compared, not hashed; without eq it is equal to itself only."""
    pair = dataclass(type("Pair", (), {"__annotations__": {"a": "int"}}))
    assert pair(1) == pair(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(pair(1))
    unequal = dataclass(frozen=True, eq=False)(type("Unequal", (), {"__annotations__": {"a": "int"}}))
    assert unequal(1) != unequal(1)
    assert isinstance(hash(unequal(1)), int)


def test_a_class_may_be_used_before_the_class_it_extends():
    """A class has the fields of the class it extends, whichever of the two is used first."""
    kind, named = point()
    assert named(1, name="here").name == "here"
    assert named(1) == named(1, 0)
    assert kind(1).x == 1
    kind, named = point()
    kind(1)
    assert named(1, 2, name="there").y == 2


def test_fields_are_known_before_the_first_instance():
    """The fields of a class can be listed before anything was constructed; wrong arguments raise TypeError."""
    kind, named = point()
    assert [item.name for item in fields(named)] == ["x", "y", "tags", "name"]
    assert dataclasses.is_dataclass(kind)
    with pytest.raises(TypeError, match="missing"):
        kind()


def test_a_plain_class_that_extends_one_is_constructed_with_its_fields():
    """A class without the decorator inherits the generated methods."""
    kind, _ = point()
    plain = type("Plain", (kind,), {})
    assert plain(3).x == 3
    assert [item.name for item in fields(plain)] == ["x", "y", "tags"]


def test_a_generic_class_can_be_parametrized():
    """A generic dataclass keeps its parameters."""

    @dataclass
    class Box(Generic[T]):
        item: T

    assert Box[int](1).item == 1


def test_nothing_is_generated_before_the_first_use():
    """The standard decorator is called once a class, when the class is first used."""
    with patch.object(dataclasses, "dataclass", wraps=dataclasses.dataclass) as standard:
        kind, named = point()
        assert standard.call_count == 0
        kind(1), kind(2)
        assert standard.call_count == 1
        named(1), named(2)
    assert standard.call_count == 2


def test_a_class_with_its_own_constructor_keeps_it():
    """A class that writes its own __init__ is completed at once and constructed by it."""

    @dataclass(init=False)
    class Sum:
        total: int

        def __init__(self, *parts: int) -> None:
            self.total = sum(parts)

    assert Sum(1, 2) == Sum(3)


@pytest.mark.parametrize("_turn", range(20))
def test_threads_may_use_a_class_first(_turn):
    """Threads that use a class for the first time at the same moment all get complete values."""
    kind, _ = point()
    start, values = Barrier(4), []

    def construct():
        start.wait()
        values.append(kind(1, 2))

    threads = [Thread(target=construct) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [kind(1, 2)] * 4
