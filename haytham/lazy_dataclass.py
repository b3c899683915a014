"""`dataclass`, which generates the methods of a class when the class is first used.

The standard decorator compiles up to six methods a class, which takes 0.4 ms. A command imports about a hundred such
classes and uses half of them, so generating all methods at once was a quarter of the time that a command took.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - exported: the same to a type checker
else:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """Return a class like `dataclasses.dataclass` does, without slots; a class with its own __init__ at once."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if "__init__" in vars(cls):
            return dataclasses.dataclass(**options)(cls)
        return _defer(cls, **options)


_LOCK = RLock()  # two threads may use a class first, and generating one class looks at its bases
_OF_CLASSES = ("__dict__", "__weakref__")  # each class has its own


def _defer(cls: type, *, eq: bool = True, frozen: bool = False, **options: Any) -> Any:
    """Return a copy of a class with one base more, which generates the methods when one of them is looked for."""
    is_pending = True

    def generate() -> None:
        nonlocal is_pending
        with _LOCK:
            if is_pending:
                is_pending = False
                dataclasses.dataclass(eq=False, repr=False, frozen=frozen, **options)(complete)

    def first_init(self: Any, *args: Any, **values: Any) -> None:
        generate()
        complete.__init__(self, *args, **values)

    methods: dict[str, Any] = {"__init__": first_init, "__dataclass_fields__": _Fields(generate), "__repr__": _repr}
    if eq:
        methods |= {"__eq__": _equals, "__hash__": _hash if frozen else None}
    bases = cls.__bases__ if cls.__bases__ != (object,) else ()
    namespace = {name: value for name, value in vars(cls).items() if name not in _OF_CLASSES}
    complete: Any = type(cls)(cls.__name__, (type("Deferred", (), methods), *bases), namespace)
    return complete


class _Fields:
    """The fields of a class whose methods are not generated yet."""

    def __init__(self, generate: Callable[[], None]) -> None:
        self._generate = generate

    def __get__(self, instance: object, owner: type) -> dict[str, Any] | None:
        """Generate the methods; return the fields of the nearest class that has any."""
        self._generate()
        own = (vars(cls).get("__dataclass_fields__") for cls in owner.__mro__)
        return next((fields for fields in own if isinstance(fields, dict)), None)


# What needs no compilation: the same for all classes.


@cache
def _compared(cls: Any) -> Callable[[Any], Any]:
    """Return a function that returns the values which tell whether two objects of a class are equal."""
    return _getter([field.name for field in dataclasses.fields(cls) if field.compare])


@cache
def _hashed(cls: Any) -> Callable[[Any], Any]:
    """Return a function that returns the values which make the hash of an object of a class."""
    fields = dataclasses.fields(cls)
    return _getter([field.name for field in fields if (field.compare if field.hash is None else field.hash)])


def _getter(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _value: ()


def _equals(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    kind: Any = type(self)
    values = _compared(kind)
    return values(self) == values(other)


def _hash(self: Any) -> int:
    kind: Any = type(self)
    return hash(_hashed(kind)(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"
