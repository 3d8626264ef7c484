"""The file of a run's last evaluation: one row per episode, and the steps of a few of them.

``RUN/episodes.safetensors`` is one safetensors file, written atomically. Its metadata
``"episodes"`` is JSON: what was evaluated (:class:`EvaluatedEpisodes` ``.facts``). Its tensors:

    columns/return, columns/length, columns/ended, columns/<channel>     (seed, episode)
    columns/level/<leaf>                                 (seed, episode, ...), of small levels
    steps/<seed>/<episode>/{action, reward, discount}                    (step, ...)
    steps/<seed>/<episode>/obs[/<entry>]                                 (step, ...), small vectors
    steps/<seed>/<episode>/channel/<name>                                (step, ...)
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from sterling.system.atomic_files import atomic_write
from sterling.system.mistake import Mistake

FILE_NAME = "episodes.safetensors"
MAX_BYTES = 5_000_000  # bytes of recorded steps in one file, and of levels
LEVEL = "level/"  # begins the names of columns that hold the leaves of levels
KEPT_EACH = 3  # so many of the worst and so many of the best episodes keep their steps
EpisodeId = tuple[int, int]  # the seed itself, and the episode's number, from 0 on


@dataclasses.dataclass(frozen=True)
class EpisodeSteps:
    """The steps of one episode; every array is ``(step, ...)``."""

    action: Num[np.ndarray, "step ..."]
    reward: Float[np.ndarray, "step"]
    discount: Float[np.ndarray, "step"]  # 0 in the last step of an episode that terminated
    obs: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # acted on; {}: not kept
    channels: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        parts = (self.action, self.reward, self.discount, *self.obs.values())
        return sum(part.nbytes for part in (*parts, *self.channels.values()))

    def without_obs(self) -> EpisodeSteps:
        """Return the same steps without their observations."""
        return dataclasses.replace(self, obs={})


@dataclasses.dataclass(frozen=True)
class EvaluatedEpisodes:
    """All episodes of one evaluation.

    ``facts``: ``environment``, ``seeds``, ``envs`` (copies of the environment per seed), ``final``
    (whether it is the evaluation of the final policies), ``step`` and ``update`` of the policies,
    ``failed_seeds``, and ``reset_seeds`` ``(seed, env)`` if environments were reset with a seed.
    """

    facts: dict[str, Any]
    # "return", "length", "ended", channels: (seed, episode); leaves of levels: with further axes
    columns: dict[str, np.ndarray]
    steps: dict[EpisodeId, EpisodeSteps] = dataclasses.field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        """Return the seeds."""
        return [int(seed) for seed in self.facts["seeds"]]

    @property
    def channels(self) -> list[str]:
        """Return the columns besides return, length, end and levels."""
        known = ("return", "length", "ended")
        return [name for name in self.columns if name not in known and not is_level(name)]

    def value(self, column: str, which: EpisodeId) -> float:
        """Return one episode's value of a column."""
        return float(self.columns[column][self.seeds.index(which[0]), which[1]])

    def start_text(self, which: EpisodeId) -> str:
        """Return in words how an episode begins."""
        turn, env = divmod(which[1], int(self.facts["envs"]))
        given = self.facts.get("reset_seeds")
        if given is None:
            return f"evaluation episode {which[1]} of seed {which[0]} (drawn from its random key)"
        first = f"reset(seed={given[self.seeds.index(which[0])][env]})"
        return first if not turn else f"reset number {turn + 1} after {first}"


def is_level(column: str) -> bool:
    """Whether a column holds a leaf of levels."""
    return column.startswith(LEVEL)


def choose_episodes(
    made: EvaluatedEpisodes, count: int, *, best: bool = False, seed: int | None = None
) -> list[EpisodeId]:
    """Return the ``count`` episodes with the lowest returns, the worst first (``best``: with the
    highest, the best first), of one seed or of all that did not fail. Ties go by seed and number.
    """
    failed = set(made.facts.get("failed_seeds", ()))
    seeds = [each for each in made.seeds if each not in failed] if seed is None else [seed]
    every = [(each, number) for each in seeds for number in range(made.columns["return"].shape[1])]
    sign = -1.0 if best else 1.0
    return sorted(every, key=lambda which: (sign * made.value("return", which), which))[:count]


def fit_to_size(made: EvaluatedEpisodes) -> dict[EpisodeId, EpisodeSteps]:
    """Return the steps that fit into ``MAX_BYTES``. Those of the run's worst and best episodes are
    given up last; of each episode the observations are given up before the rest."""
    kept, extremes = dict(made.steps), run_extremes(made)
    spare = [which for which in kept if which not in extremes]
    for group in (spare, [which for which in extremes if which in kept]):
        for drop in (True, False):
            for which in sorted(group, key=lambda which: -made.steps[which].size):
                if sum(each.size for each in kept.values()) <= MAX_BYTES:
                    return kept
                if drop:
                    kept[which] = kept[which].without_obs()
                else:
                    del kept[which]
    return kept


def run_extremes(made: EvaluatedEpisodes) -> list[EpisodeId]:
    """Return the run's ``KEPT_EACH`` worst and best episodes."""
    ids = [which for best in (False, True) for which in choose_episodes(made, KEPT_EACH, best=best)]
    return list(dict.fromkeys(ids))


def write_episodes(folder: Path, made: EvaluatedEpisodes) -> Path:
    """Write the file of a run's ``folder`` atomically; return its path."""
    from safetensors.numpy import save

    levels = {name: x for name, x in made.columns.items() if is_level(name)}
    left_out = levels if sum(x.nbytes for x in levels.values()) > MAX_BYTES else {}
    kept = {name: x for name, x in made.columns.items() if name not in left_out}
    tensors = {f"columns/{name}": np.asarray(x) for name, x in kept.items()}
    for (seed, number), one in fit_to_size(made).items():
        parts = {"action": one.action, "reward": one.reward, "discount": one.discount}
        parts |= {f"obs/{name}" if name else "obs": x for name, x in one.obs.items()}
        parts |= {f"channel/{name}": x for name, x in one.channels.items()}
        tensors |= {f"steps/{seed}/{number}/{name}": np.asarray(x) for name, x in parts.items()}
    path = folder / FILE_NAME
    plain = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
    with atomic_write(path) as partial:
        partial.write_bytes(save(plain, {"episodes": json.dumps({"version": 1, **made.facts})}))
    return path


def read_episodes(folder: Path) -> EvaluatedEpisodes | None:
    """Return the episodes of a run's ``folder``; None if it has none. Raise :class:`Mistake` where
    the file is damaged."""
    from safetensors import SafetensorError, safe_open

    path = folder / FILE_NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, "numpy") as file:
            facts = json.loads(file.metadata()["episodes"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _from_tensors(facts, tensors)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Mistake(f"{path} is damaged ({error}). Delete it; it can be made again.") from error


def _from_tensors(facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> EvaluatedEpisodes:
    columns: dict[str, np.ndarray] = {}
    parts: dict[EpisodeId, dict[str, np.ndarray]] = {}
    for name, x in tensors.items():
        room, _, rest = name.partition("/")
        if room == "columns":
            columns[rest] = x
            continue
        seed, number, part = rest.split("/", 2)
        parts.setdefault((int(seed), int(number)), {})[part] = x
    if columns["return"].shape[0] != len(facts["seeds"]) or int(facts["envs"]) < 1:
        raise ValueError("its columns do not fit its seeds")
    order = ["return", "length", "ended"]
    names = [*(name for name in order if name in columns), *sorted(set(columns) - set(order))]
    steps = {which: _steps_from(each) for which, each in parts.items()}
    return EvaluatedEpisodes(facts, {name: columns[name] for name in names}, steps)


def _steps_from(parts: dict[str, np.ndarray]) -> EpisodeSteps:
    obs = {
        name.removeprefix("obs").removeprefix("/"): x
        for name, x in parts.items()
        if name.split("/")[0] == "obs"
    }
    channels = {
        name.removeprefix("channel/"): x for name, x in parts.items() if name[:8] == "channel/"
    }
    return EpisodeSteps(parts["action"], parts["reward"], parts["discount"], obs, channels)


def merge_episodes(parts: list[EvaluatedEpisodes], seeds: list[int]) -> EvaluatedEpisodes:
    """Join the episodes of the same evaluation of several parts of a run, each with other
    ``seeds``."""
    facts = dict(parts[0].facts) | {"seeds": seeds}
    facts["failed_seeds"] = sorted(s for part in parts for s in part.facts["failed_seeds"])
    rows = [(part, at) for seed in seeds for part in parts for at, own in enumerate(part.seeds)
            if own == seed]  # fmt: skip
    if facts.get("reset_seeds") is not None:
        facts["reset_seeds"] = [part.facts["reset_seeds"][at] for part, at in rows]
    shared = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    columns = {name: np.stack([part.columns[name][at] for part, at in rows]) for name in shared}
    steps = {which: each for part in parts for which, each in part.steps.items()}
    return EvaluatedEpisodes(facts, columns, steps)
