"""Answer attributes that other libraries' objects have: ``run.predict``, ``run.save``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class AnswersPeerNames:
    """A base class whose objects say what to write for an attribute of another library's models.

    The error is an AttributeError, so ``hasattr`` is False. Names that begin with an underscore,
    which copying, pickling and notebooks look for, are left to Python.
    """

    if not TYPE_CHECKING:  # mypy would accept every attribute

        def __getattr__(self, name: str) -> Any:  # only for attributes that do not exist
            if not name.startswith("_"):
                from sterling.lookup.peer_names import unknown_call

                if said := unknown_call(name):  # with a name, Python adds no suggestion of its own
                    raise AttributeError(f"A run has no {name!r}{said}", name=name)
            return object.__getattribute__(self, name)  # raises the usual error
