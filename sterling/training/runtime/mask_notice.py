"""Say once that a compiled world's action mask left a choice without an option."""

from __future__ import annotations

from typing import Any

from sterling.experience.rollouts.empty_choices import empty_choice_notice
from sterling.system.terminal_messages import print_notice


class MaskNotice:
    """Prints the line of :func:`empty_choice_notice` for the environment ``name``, once."""

    def __init__(self, name: str):
        self._name, self._printed = name, False

    def print_once(self, source: Any, tally: Any, step: int) -> None:
        """Print the line if ``tally`` names a choice, and no line was printed before."""
        if not self._printed and (line := empty_choice_notice(source, tally, self._name, step)):
            print_notice(line)
            self._printed = True
