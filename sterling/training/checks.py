"""Whether what a run was asked beside its numbers can be used by its learner."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from sterling.data import Dataset
from sterling.disk import try_place
from sterling.envs.traced import Task
from sterling.naming import hint
from sterling.needs import DREAM, LABELS, SAID
from sterling.report.metrics import Sink
from sterling.training.choices import Guidance, Speech
from sterling.training.fields import whole
from sterling.types import Mistake


@runtime_checkable
class Configured(Protocol):
    """What might be an algorithm."""

    Config: Any


GUIDINGS = ("jump-start", "expansion")
A_PATH = ((str, os.PathLike), "a path")
KINDS: dict[str, tuple[Any, str]] = {  # of what only Python can give otherwise
    "algorithm": ((str, ModuleType, Configured), "a name, as 'ppo', a file or an algorithm"),
    "environment": (
        (str, Callable, Task),
        "a name, or a function that builds a gymnasium.Env, a Task or a World, or a Task",
    ),
    "path": A_PATH,
    "out": A_PATH,
    "data": ((str, os.PathLike, Dataset), "a path, or a Dataset"),
    "env_options": (Mapping, "a dict, as {'max_episode_steps': 500}"),
    "online": (Mapping, "a dict, as {'alpha': 0.4}"),
    "preset": (bool, "True or False"),
    "unchecked": (bool, "True or False"),
    "guide": (Guidance, "a Guidance, as Guidance('runs/earlier', steps=200)"),
    "augment": (str, "text, as 'gaussian:0.0003'"),
    "sources": (str, "text, as 'plr' or 'pool:4,10000'"),
    "hindsight": (str, "text, as 'future'"),
    "sampling": (str, "text, as 'episodes'"),
}


def check_kinds(**given: Any) -> None:
    """Whether what a call from Python gave is of a kind that can be used at all; None, where it
    is no choice of its own, says that nothing was given."""
    for name, value in given.items():
        if name not in KINDS or (value is None and name not in ("algorithm", "path")):
            continue
        kinds, wanted = KINDS[name]
        if not isinstance(value, kinds):
            said = ": write `lambda: ...` around it" if hasattr(value, "action_space") else ""
            raise Mistake(f"{name} must be {wanted}; got {value!r:.60}{said}")


def check_again(path: Any, environment: Any, algorithm: Any) -> None:
    """The same of what loading a run takes, where the algorithm may be left out."""
    check_kinds(path=path, environment=environment)
    if algorithm is not None:
        check_kinds(algorithm=algorithm)


def check_sinks(sinks: Any) -> None:
    """Whether each can be told of rows."""
    if isinstance(sinks, (list, tuple)):
        wrong = [each for each in sinks if not isinstance(each, Sink)]
        if not wrong:
            return
        sinks = wrong[0]
    raise Mistake(f"sinks must be a list of objects with write(row) and close(); got {sinks!r:.60}")


def check_spoken(settings: Any, needs: Any) -> None:
    """Whether the settings of a run that teaches a language model go together."""
    name = settings.title
    said = [each for each in ("steps", "data") if getattr(settings, each)]
    if said or not settings.updates:
        remedy = f"leave out {', '.join(said)}" if said else "give updates=N"
        raise Mistake(f"{name} teaches a language model and counts updates; {remedy}")
    if settings.env_options:
        raise Mistake(
            f"worlds of text have no options; leave out {', '.join(settings.env_options)}"
        )
    speech = settings.speech or Speech()
    check_speech(name, speech, needs)
    if settings.strategy == "processes" and (speech.dump or speech.replay):
        raise Mistake("dump and replay are of all seeds together; leave out processes")


def check_speech(name: str, speech: Speech, needs: Any) -> None:
    """Whether the learner reads what was said of its texts and conversations."""
    whole("slots", speech.slots, 1)
    whole("examples", speech.examples, 1)
    whole("context", speech.context)
    whole("lora", speech.lora)
    if not 0 <= speech.held_out < 1:
        raise Mistake(f"held_out is a share from 0 to below 1; got {speech.held_out}")
    if not speech.patience > 0:
        raise Mistake(f"patience must be above 0 seconds; got {speech.patience}")
    speaks = needs.of(SAID)
    unread = ("texts", "examples") if speaks else ("curriculum", "dump", "replay", "pool")
    said = [each for each in unread if getattr(speech, each) != getattr(Speech(), each)]
    if said:
        what = "what it says itself" if speaks else "texts"
        raise Mistake(f"{name} learns from {what}; leave out {', '.join(said)}")
    beside = [each for each in ("dump", "pool", "curriculum")
              if getattr(speech, each) != getattr(Speech(), each)]  # fmt: skip
    if speech.replay and beside:
        named = ", ".join(beside)
        raise Mistake(f"replay learns from what is written there alone; leave out {named}")
    if speaks and speech.pool and not needs.again and not speech.replay:
        raise Mistake("of a pool so many answers of each batch are remembered: give again=N")


def check_dump(speech: Speech | None) -> None:
    """Whether a new run's batches have a folder of their own: they are numbered from 0. Raises
    Mistake also for one that cannot be written to."""
    if speech and speech.dump and any(Path(speech.dump).glob("*.safetensors")):
        raise Mistake(f"{speech.dump} holds batches of another run; dump into an empty folder")
    if speech and speech.dump:
        try_place(Path(speech.dump))


def check_replay(name: str, needs: Any, *, logged: bool, scored: bool) -> None:
    """Whether an agent would dream of a log, or of levels that are scored, or have pairs of them
    compared, or needs of a log what it does not hold; ``scored``: the replay's rows are, by a
    source around it."""
    if logged and needs.keep:
        raise Mistake(
            f"{name} learns from what is recorded as it acts ({', '.join(needs.keep)}), which no "
            "log holds; leave out data"
        )
    if logged and any(feed.every > 1 for feed in needs.feeds):
        raise Mistake(f"{name} learns in some iterations only, which updates=N cannot count")
    if logged and len({feed.monte_carlo for feed in needs.feeds} - {None}) > 1:
        raise Mistake(f"{name} asks for returns with several discounts; a log gives one")
    needs_replay = needs.of(DREAM) or needs.of(LABELS)
    if needs_replay and (logged or scored):
        raise Mistake(f"{name} begins with what it lives itself; leave out data and plr")


def check_guide(guide: Guidance | None, needs: Any, *, acts: bool) -> None:
    """Whether the policies that help can help, and are said how; ``acts``: the run has steps."""
    if guide is None:
        return
    if guide.how not in GUIDINGS:
        near = hint(guide.how, GUIDINGS, f"there are {', '.join(GUIDINGS)}")
        raise Mistake(f"policies cannot guide by {guide.how!r}{near}")
    if not needs.replays or not acts:
        raise Mistake(
            "a guide helps learners that replay what they live through, and needs steps=N"
        )
    if guide.how == "jump-start" and guide.steps < 1:
        raise Mistake("jump-start needs the latest step at which the learner takes over: steps")
