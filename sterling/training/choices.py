"""What a run may be asked beside an algorithm and a world: a log, a guide, a language model."""

from __future__ import annotations

import dataclasses
from typing import Any

from sterling.naming import called
from sterling.types import Mistake

BUDGETS = ("steps", "updates")  # what a run may be given: of the world, of gradients


@dataclasses.dataclass(frozen=True)
class Logbook:
    """Which logged experience a run learns from, and how."""

    path: str
    hash: str  # of its content; a run goes on only with the same
    share: float = 0.5  # of each batch that comes from the log once there are steps
    top: float = 1.0  # share of the episodes, those with the largest returns, that is used
    sampling: str = "uniform"  # how rows are drawn: see sterling.data.returns.shares
    unchecked: bool = False  # learn from it even if `sterling data check` finds errors


@dataclasses.dataclass(frozen=True)
class Phase:
    """What a run does next, with the same agents: steps in a world, or updates from a log.

    Where it names neither world nor log it goes on where the phase before was, with what that has
    kept; what it names begins anew.
    """

    steps: int = 0  # environment steps per seed
    updates: int = 0  # gradient updates per seed from the log alone, before those
    environment: Any = ""  # "": the one before
    env_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    data: Logbook | None = None  # None: the one before, where the world is as well
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the Config, from now on

    def to_json(self) -> dict[str, Any]:
        """Plain values; an environment that cannot be imported again is written as its name."""
        own = self.environment
        where = own if isinstance(own, str) else {"not stored": called(own)}
        return {
            **dataclasses.asdict(dataclasses.replace(self, environment="")),
            "environment": where,
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Phase:
        """The inverse; Mistake for what was not stored."""
        if isinstance(plain.get("environment"), dict):
            name = plain["environment"].get("not stored")
            raise Mistake(
                f"a later phase of this run used the environment {name!r}, which is not stored; "
                "put it into a file and name that, as my_world.py:make (docs/extending.md)"
            )
        return cls(**plain | {"data": Logbook(**plain["data"]) if plain.get("data") else None})


@dataclasses.dataclass(frozen=True)
class Guidance:
    """Policies learned before that help to act (see ``experience/guided.py``)."""

    path: str  # of the run whose agents guide; seed by seed, in turn where they are fewer
    how: str = "jump-start"  # or "expansion"
    steps: int = 0  # jump-start: the latest step of an episode at which the learner takes over
    temperature: float = 1.0 / 3.0  # expansion: of the choice between the two, in units of value


@dataclasses.dataclass(frozen=True)
class Speech:
    """Which language model is taught, and how it is asked."""

    model: str = "tiny"  # a size of new models, a Hugging Face folder, or a run that taught one
    levels: str = ""  # difficulties: "2", "0-3", "1,4"; "": the easiest
    held_out: float = 0.0  # share of all questions that is kept to judge: see worlds/apart.py
    curriculum: str = "uniform"  # which of them is asked: see experience/curriculum.py
    texts: str = ""  # a JSONL file to imitate; "": the world's own solutions
    examples: int = 4096  # of those
    dump: str = ""  # a folder into which every batch is written
    replay: str = ""  # such a folder, to learn from in place of conversations
    pool: str = ""  # such a folder, whose right answers are remembered: see the field ``again``
    context: int = 0  # tokens of a line at most; 0: what the world's scenes need
    slots: int = 64  # answers that are written at a time
    lora: int = 0  # rank of adapters, which alone are taught; 0: every weight is
    forget: bool = False  # compute layers again for the gradient: less memory, more work
    patience: float = 10.0  # seconds that a scene may take to react, its verifiers' own aside
