"""The one question that is put to a language model: which tokens follow these?

Scenes, evaluations, judges and servers put it to a :class:`Sampler`. The answer is a function of
the model and of what is asked: its randomness is derived from the ask alone, never from time,
place or what else is asked meanwhile.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Likeliest = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]


@dataclasses.dataclass(frozen=True)
class Ask:
    """A prompt, and how it is answered."""

    ids: tuple[int, ...]  # the prompt's tokens, at least one
    chance: int  # 64 bits, from which all randomness of the answer is derived: see chance_of
    limit: int  # most tokens of the answer
    temperature: float = 1.0  # divides the logits; 0: always the likeliest token
    top_k: int = 0  # sample from the top_k likeliest tokens; 0: all
    top_p: float = 1.0  # sample from the likeliest tokens with this total probability; 1: all


@dataclasses.dataclass(frozen=True)
class Said:
    """The answer to an :class:`Ask`."""

    ids: Sequence[int]  # with the token that ended it, if one did
    log_prob: Sequence[float]  # of the distribution each token was drawn from
    stopped: bool  # False: cut off at the limit
    version: int = 0  # updates that the model had had
    likeliest: Likeliest | None = dataclasses.field(default=None, compare=False, repr=False)
    """The likeliest tokens at each place and their log-probabilities, (token, some): if kept."""


@runtime_checkable
class Sampler(Protocol):
    """Who answers asks: a model of this process, another one, or a script."""

    def ask(self, asks: Sequence[Ask]) -> list[Future[Said]]:
        """Begin to answer; asks to one prompt that come together share its reading."""
        ...

    def close(self) -> None:
        """Answer nothing more; what is not answered is cancelled."""
        ...


def chance_of(key: npt.ArrayLike, place: tuple[int, ...], ids: Sequence[int], nth: int = 0) -> int:
    """Return an ask's chance: a hash of a random key's data, of where the ask stands (the scene and
    its seat), of its prompt, and of its number ``nth`` there (the seat's turn)."""
    words = [*np.asarray(key, np.uint32).tolist(), *place, nth, *ids]
    data = np.asarray(words, np.int64).tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
