"""OGBench's scripted collections (Park 2025, arXiv:2410.20092), by the worlds and oracles that its
package ships: ``pip install "sterling-rl[ogbench]"``.

    pointmaze-{medium,large,giant,teleport}-{navigate,stitch}
    cube-{single,double,triple,quadruple}-{play,noisy}
    scene-{play,noisy}
    puzzle-{3x3,4x4,4x5,4x6}-{play,noisy}

each ``-v0``, or ``-singletask-v0``, or ``-singletask-task1-v0`` to ``-task5-v0`` with the rewards
of one task. Numbers are those of the published sets (their data_gen_scripts/commands.sh):

    navigate  goals drawn anew as they are reached, steps with normal noise of 0.5
    stitch    one goal four cells away
    play      plans with smoothed noise of 0.1, one target after the other
    noisy     closed-loop oracles with normal noise of up to 0.1 times 1 (position), 3 (turning) and
              10 (gripper), and random actions with probability 0.1 (puzzle: 0.2)

An episode's numbers depend on the seed and on its own number alone, so any number of processes
makes the same data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.metadata
import io
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from sterling.data.columns import Block, has_successors
from sterling.data.dataset import Dataset
from sterling.data.facts import Facts, Source
from sterling.factory.agents import Say
from sterling.factory.crew import each
from sterling.factory.make import Order, commit, stream
from sterling.naming import hint
from sterling.types import Mistake

MAZES = tuple(f"pointmaze-{size}" for size in ("medium", "large", "giant", "teleport"))
TABLES = (
    *(f"cube-{many}" for many in ("single", "double", "triple", "quadruple")),
    *("scene", *(f"puzzle-{size}" for size in ("3x3", "4x4", "4x5", "4x6"))),
)
KINDS = {**dict.fromkeys(MAZES, ("navigate", "stitch")), **dict.fromkeys(TABLES, ("play", "noisy"))}
NAMES = tuple(f"{world}-{kind}-v0" for world, kinds in KINDS.items() for kind in kinds)
STEPS = {"stitch": 200}  # of an episode; else
LONG, USUAL = 2000, 1000  # in the giant maze, and elsewhere
FORM = re.compile(r"(.+)-(navigate|stitch|play|noisy)((?:-singletask(?:-task[1-5])?)?)-v0")
KEPT = ("qpos", "qvel", "button_states")  # of what the world tells besides, where it does
Told = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Collection:
    """One of the published sets."""

    world: str
    kind: str
    task: str = ""  # "", "-singletask" or "-singletask-taskN"

    @property
    def environment(self) -> str:
        """Where learners are judged, as Gymnasium and Sterling know it."""
        return f"ogbench:{self.world}{self.task}-v0"

    @property
    def steps(self) -> int:
        """Of every episode."""
        return STEPS.get(self.kind, LONG if self.world.endswith("giant") else USUAL)


def knows(name: str) -> bool:
    """Whether a name has the form of OGBench's."""
    return FORM.fullmatch(name.removeprefix("ogbench:")) is not None


def collection(name: str) -> Collection:
    """The set called ``name``; raises Mistake where there is none that is scripted."""
    found = FORM.fullmatch(name.removeprefix("ogbench:"))
    if not found or found[2] not in KINDS.get(found[1], ()):
        near = hint(name, NAMES, f"there are {', '.join(NAMES)}")
        raise Mistake(f"no scripted collection is called {name!r}{near}")
    return Collection(*found.groups())


def collect(order: Order, say: Say) -> Dataset:
    """Make a collection; its last episode is cut where ``order.size`` rows are reached."""
    wanted = collection(order.environment)
    with silence():
        package()
    count = -(-order.size // wanted.steps)
    work = [(wanted, order.seed, number) for number in range(count)]
    lived: list[Told] = []
    for told in each(episode, work, order.workers):
        lived.append(told)
        say(f"{order.environment}: {len(lived)} of {count} episodes")
    lengths = [min(wanted.steps, order.size - number * wanted.steps) for number in range(count)]
    arrays = {name: _cut(name, lived, lengths) for name in lived[0]}
    with silence():
        world = _made(wanted.environment)
        _relabel(wanted, world, arrays, lengths)
    version = importlib.metadata.version("ogbench")
    name = f"OGBench {version}'s oracles: {wanted.kind}, {count} episodes of {wanted.steps} steps"
    source = Source(name, "ogbench", order.words, commit())  # done in the middle, as its files are
    block = Block(arrays, np.array(lengths, np.int64), np.zeros(count, np.int32))
    facts = Facts(wanted.environment, _reference(wanted, world), (source,))
    made = Dataset.of(block, world.observation_space, world.action_space, facts)
    world.close()
    return made


def episode(wanted: Collection, seed: int, number: int) -> Told:
    """One episode's columns: n rows, and n + 1 observations and infos."""
    with silence():
        script = _script(wanted)
        for attempt in range(1000):
            dice = np.random.default_rng([seed, number, attempt])
            with _global_dice(int(dice.integers(2**32))):
                found = script.live(dice)
            if found is not None:
                return found
    raise Mistake(f"{wanted.world} does not come to a healthy episode; this is a fault of ours")


def package() -> Any:
    """The package, which registers its worlds; raises Mistake where it is not installed."""
    try:
        return importlib.import_module("ogbench")
    except ImportError as error:
        raise Mistake(
            f"scripted collections of OGBench need its package ({error}): "
            'pip install "sterling-rl[ogbench]"'
        ) from error


def _made(name: str, **options: Any) -> Any:
    import gymnasium

    package()
    return gymnasium.make(name, **options)


_SCRIPTS: dict[Collection, Any] = {}  # one world per process: it takes long to build


def _script(wanted: Collection) -> Any:
    """Who acts, in a world of this process."""
    plain = dataclasses.replace(wanted, task="")
    if plain not in _SCRIPTS:
        kind = "factory.ogbench_maze" if wanted.world in MAZES else "factory.ogbench_arm"
        _SCRIPTS[plain] = importlib.import_module(f"sterling.{kind}").Script(plain, _made)
    return _SCRIPTS[plain]


def told(rows: list[tuple[Any, Any, dict[str, Any]]], final: Any) -> Told:
    """Columns of ``(observation, action, info after it)`` rows and the last observation."""
    arrays = {
        "obs": np.array([*(obs for obs, _, _ in rows), final], np.float32),
        "action": np.array([action for _, action, _ in rows], np.float32),
    }
    infos = [info for _, _, info in rows]
    for name in KEPT:
        if name in infos[0]:
            first, rest = infos[0][f"prev_{name}"], [info[name] for info in infos]
            kind = np.int64 if name == "button_states" else np.float32
            arrays[f"info/{name}"] = np.array([first, *rest], kind)
    return arrays


def _cut(name: str, lived: list[Told], lengths: list[int]) -> np.ndarray:
    """A column of all episodes, each of which is cut to its length."""
    more = has_successors(name)
    return np.concatenate([one[name][: n + more] for one, n in zip(lived, lengths, strict=True)])


def _relabel(wanted: Collection, world: Any, arrays: Told, lengths: list[int]) -> None:
    """Rewards and discounts: of the task where there is one, by OGBench's own rule (a success in
    the observation that was acted on, and then nothing counts), else zeros and ones."""
    count = sum(lengths)
    arrays["reward"], arrays["discount"] = np.zeros(count, np.float32), np.ones(count, np.float32)
    if not wanted.task:
        return
    relabel = importlib.import_module("ogbench.relabel_utils").relabel_dataset
    before = np.arange(count) + np.repeat(np.arange(len(lengths)), lengths)
    rows = {name: arrays[f"info/{name}"][before] for name in KEPT if f"info/{name}" in arrays}
    with _global_dice(stream(0, "relabel")):
        world.reset(seed=0)
        relabel(world.spec.id, world, rows)
    arrays["reward"], arrays["discount"] = rows["rewards"], rows["masks"]


def _reference(wanted: Collection, world: Any) -> tuple[float, float] | None:
    """The returns of an agent that changes nothing, and of one that is done at once."""
    if not wanted.task:
        return None
    with silence(), _global_dice(stream(0, "reference")):
        world.reset(seed=0)
        reward = world.step(np.zeros(world.action_space.shape, np.float32))[1]
    return float(reward) * world.spec.max_episode_steps, 0.0


@contextlib.contextmanager
def _global_dice(seed: int) -> Iterator[None]:
    """OGBench draws from NumPy's global generator: seeded here, and put back as it was."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Without the warnings of other packages (screens that are missing, precision)."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
