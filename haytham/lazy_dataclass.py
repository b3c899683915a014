"""`dataclass`, which generates the methods of a class when the class is first used.

The standard decorator compiles up to six methods a class, which takes 0.4 ms. A command imports about a hundred such
classes and uses a third of them, so generating all methods at once was a quarter of the time that a command took.
"""

from __future__ import annotations

import dataclasses
from threading import RLock
from typing import TYPE_CHECKING, Any

_LOCK = RLock()  # a class may be used by two threads at once, and generating one class looks at its bases

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - exported: the same to a type checker
else:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """Return a class like `dataclasses.dataclass` does, without slots; a class with its own __init__ at once."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if "__init__" in vars(cls):
            return dataclasses.dataclass(**options)(cls)
        return _defer(cls, options)


def _defer(cls: type, options: dict[str, Any]) -> Any:
    """Return a copy of a class with one base more, which generates the methods when one of them is looked for."""
    is_pending = True

    def generate() -> None:
        nonlocal is_pending
        with _LOCK:
            if is_pending:
                is_pending = False
                dataclasses.dataclass(**options)(complete)

    def first_init(self: Any, *args: Any, **values: Any) -> None:
        generate()
        complete.__init__(self, *args, **values)

    base = type("Deferred", (), {"__init__": first_init, "__dataclass_fields__": _Fields(generate)})
    bases = cls.__bases__ if cls.__bases__ != (object,) else ()
    namespace = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    complete: Any = type(cls)(cls.__name__, (base, *bases), namespace)
    return complete


class _Fields:
    """The fields of a class whose methods are not generated yet."""

    def __init__(self, generate: Any) -> None:
        self._generate = generate

    def __get__(self, instance: object, owner: type) -> dict[str, Any] | None:
        """Generate the methods; return the fields of the nearest class that has any."""
        self._generate()
        own = (vars(cls).get("__dataclass_fields__") for cls in owner.__mro__)
        return next((fields for fields in own if isinstance(fields, dict)), None)
