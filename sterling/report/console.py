"""Where tables and panels are printed."""

from __future__ import annotations

from typing import Any

from rich.console import Console


class Output(Console):
    """A console that colours nothing by itself, and whose reader may leave: that is
    BrokenPipeError, as it is of ``print``, where rich would end the program with code 1."""

    def __init__(self, **options: Any):
        super().__init__(highlight=False, **options)

    def on_broken_pipe(self) -> None:
        """Say so as ``print`` does."""
        raise BrokenPipeError("nobody reads any more")
