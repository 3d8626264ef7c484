"""Read the statistics that Stable-Baselines3's ``VecNormalize`` saved, without running its pickle.

A pickle may call anything. Here it can name only what such a file holds, and no name stands for the
thing itself: spaces, generators and the wrapper become records of what they were given, and arrays
are made from their bytes.
"""

from __future__ import annotations

import io
import pickle
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sterling.equations.running_moments import EPSILON
from sterling.training.warm_start.learned_parts import OBS_STATISTICS, REWARD_STATISTICS
from sterling.types import Mistake

CLIP = 10.0  # deviations at which Sterling's running normalisers clip
MAX_BYTES = 1 << 28  # 256 MiB: such a file also holds the last observations
NUMBERS = re.compile(r"[fiub][1248]")  # words of NumPy for types of plain numbers
WRAPPER, STATISTICS = "VecNormalize", "RunningMeanStd"
RECORDED = re.compile(
    r"stable_baselines3\.common\.vec_env\.vec_normalize\.VecNormalize"
    r"|stable_baselines3\.common\.running_mean_std\.RunningMeanStd"
    r"|gym(nasium)?\.spaces\.\w+\.\w+"
    r"|numpy\.random\._pickle\.__(bit_)?generator_ctor"
    r"|numpy\.random\.(_\w+|bit_generator)\.\w+"
)


class Normaliser(NamedTuple):
    """What a ``VecNormalize`` had learned."""

    arrays: dict[str, np.ndarray]  # statistics by Sterling's names, without a seed axis
    scales_rewards: bool  # whether rewards were divided by the deviation of returns
    note: str  # what a line says of a clip that differs from Sterling's


class _Record:
    """An object of the pickle that is not created: its class's name, and its state."""

    name = ""

    def __init__(self, *given: Any):
        self.given = given
        self.state: Any = {}

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Type(_Record):
    """A NumPy dtype: ``given`` begins with its word, ``state`` holds the order of its bytes."""

    def dtype(self) -> np.dtype[Any]:
        """Return the dtype; raise Mistake for anything but plain numbers."""
        if not NUMBERS.fullmatch(word := str(self.given[0])):
            raise Mistake(f"its statistics are of the type {word}, which is no number.")
        big = isinstance(self.state, tuple) and self.state[1] == ">"
        return np.dtype(f"{'>' if big else '<'}{word}")


class _Array(_Record):
    """A NumPy array, made only when it is asked for."""

    def array(self) -> np.ndarray:
        """Return the array."""
        _, shape, dtype, is_fortran, content = self.state
        made = np.frombuffer(content, dtype.dtype())
        return made.reshape(shape, order="F" if is_fortran else "C")


def _number(dtype: _Type, content: bytes) -> float:
    return float(np.frombuffer(content, dtype.dtype())[0])


def _array_of_buffer(content: bytes, dtype: _Type, shape: tuple[int, ...], order: str) -> _Array:
    """Return an array as pickle's fifth protocol has it."""
    made = _Array()
    made.__setstate__((1, shape, dtype, order == "F", bytes(content)))
    return made


def _empty_array(*_: Any) -> _Array:
    return _Array()


class _Reader(pickle.Unpickler):
    """An unpickler that can build numbers, containers, arrays and records, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name in the pickle; raise Mistake for all others."""
        known = {
            "collections.OrderedDict": OrderedDict,
            "numpy.dtype": _Type,
            "numpy.ndarray": _Array,
            "numpy.multiarray._reconstruct": _empty_array,
            "numpy.multiarray.scalar": _number,
            "numpy.numeric._frombuffer": _array_of_buffer,
        }
        word = f"{module}.{name}"
        plain = re.sub(r"^numpy\._?core\.", "numpy.", word)
        if plain in known:
            return known[plain]
        if RECORDED.fullmatch(word):
            return type("Record", (_Record,), {"name": name})
        raise Mistake(f"it asks for {word}, which no VecNormalize file needs and is not run.")


def read_normaliser(path: Path) -> Normaliser:
    """Return the statistics in a file of ``VecNormalize.save``; raise Mistake for any other."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Mistake("it is larger than 256 MiB.")
        return _read(_Reader(io.BytesIO(path.read_bytes())).load())
    except Mistake as error:
        raise Mistake(f"{path} cannot be read as a VecNormalize file: {error}") from error
    except Exception as error:  # a damaged pickle may raise anything
        why = f"{type(error).__name__}: {error}"
        raise Mistake(f"{path} is no VecNormalize file of Stable-Baselines3, or damaged "
                      f"({why}).") from error  # fmt: skip


def _read(found: Any) -> Normaliser:
    if getattr(found, "name", "") != WRAPPER:
        raise Mistake("it holds something else.")
    held = found.state
    arrays: dict[str, np.ndarray] = {}
    if held["norm_obs"]:
        if isinstance(held["obs_rms"], dict):
            raise Mistake("it normalises Dict observations, and of these no model is "
                          "read.")  # fmt: skip
        arrays |= _moments(f"{OBS_STATISTICS}/moments/0", held["obs_rms"], held["epsilon"])
    if held["norm_reward"]:
        arrays |= _moments(f"{REWARD_STATISTICS}/moments", held["ret_rms"], held["epsilon"])
    clip = float(held["clip_obs"])
    differs = held["norm_obs"] and clip != CLIP
    note = f"clipped at {CLIP:g} deviations here, at {clip:g} there" if differs else ""
    return Normaliser(arrays, bool(held["norm_reward"]), note)


def _moments(name: str, statistics: Any, epsilon: float) -> dict[str, np.ndarray]:
    """Return one array's statistics. Sterling adds its own epsilon to variances, so the rest of
    theirs is part of the variance."""
    if getattr(statistics, "name", "") != STATISTICS:
        raise Mistake("its statistics are of another kind.")
    mean, variance = (_numbers(statistics.state[word]) for word in ("mean", "var"))
    count = _numbers(statistics.state["count"])
    if not all(np.isfinite(each).all() for each in (mean, variance, count)):
        raise Mistake("its statistics are not finite.")
    nearest = mean.astype(np.float32)
    return {
        f"{name}/mean": nearest,
        f"{name}/remainder": mean - nearest,
        f"{name}/variance": variance + float(epsilon) - EPSILON,
        f"{name}/count": count,
    }


def _numbers(held: Any) -> np.ndarray:
    made = held.array() if isinstance(held, _Array) else np.asarray(held, np.float64)
    return np.asarray(made, np.float64)
