"""The updates of language models that are compared with oracles."""

from __future__ import annotations

import dataclasses
import functools
from importlib import import_module
from pathlib import Path
from typing import Any

import draws
import jax
import jax.numpy as jnp
import mid_run
import numpy as np
from oracles.pieces.leaves import Leaves

from sterling import algorithms
from sterling.language.models.causal_lm import LanguageModel
from sterling.nets.attention.rotary import rotary_rates
from sterling.nets.transformer import TransformerForm
from sterling.types import Record

GOLDEN = Path(__file__).parent / "golden_language.json"
ROWS, TOKENS, VOCABULARY, WIDTH = 8, 6, 7, 4
FORM = TransformerForm(
    *(2, 1, 4, 6),
    norm="rms",
    gated=True,
    biases=(False, False, False),
    normed_heads=True,
    rates=rotary_rates(4),
)
TINY = {"lr": 3e-3, "rise": 20, "max_grad_norm": 0.3, "weight_decay": 0.1}
SPOKEN = {**TINY, "prompts": 2, "group": 4, "limit": 6, "temperature": 0.8}
PAIRS = {**TINY, "batch": 4, "beta": 0.4}
GRPO = {"kl": "k3", "kl_coef": 0.3, "entropy_coef": 0.05, "low": 0.1, "high": 0.15}
STALE = {"decoupled": True, "cap": 1.1, "kl": "k1", "kl_corrected": True, "epochs": 2}
TWICE = {"epochs": 2, "minibatches": 2, "value_lr": 0.2, "gamma": 0.9}
UPDATES = {  # label -> settings; its first word is the algorithm's name
    "sft": {**TINY, "batch": 8},
    "reward": {**TINY, "batch": 4, "centring": 0.1},
    "dpo": {**PAIRS, "smoothing": 0.1},
    "dpo ipo": {**PAIRS, "loss": "ipo", "per_token": True},
    "dpo hinge": {**PAIRS, "loss": "hinge"},
    "dpo kto": {**PAIRS, "loss": "kto", "desirable": 1.2, "undesirable": 0.7},
    "dpo orpo": {**PAIRS, "loss": "orpo"},
    "dpo simpo": {**PAIRS, "loss": "simpo", "margin": 0.5},
    "grpo": {**SPOKEN, **GRPO},
    "grpo stale": {**SPOKEN, **GRPO, **STALE},
    "grpo dual": {**SPOKEN, "rule": "dual", "dual": 1.2, "kl": "k2", "aggregate": "prompt"},
    "rloo": {**SPOKEN, "kl_coef": 0.3},
    "dr-grpo": SPOKEN,
    "dapo": {**SPOKEN, "overlong": 5},
    "gspo": {**SPOKEN, "low": 0.05, "high": 0.05},
    "cispo": {**SPOKEN, "low": 0.1, "high": 0.1},
    "reinforce": SPOKEN,
    "reinforce++": {**SPOKEN, "kl_coef": 0.3},
    "lite-ppo": SPOKEN,
    "expert-iteration": SPOKEN,
    "token-ppo": {**SPOKEN, **TWICE},
    "gkd": SPOKEN,
    "gkd forward": {**SPOKEN, "beta": 0.0},
    "gkd between": {**SPOKEN, "beta": 0.3},
}
WRONG = np.linspace(-2.0, 2.0, VOCABULARY * WIDTH).reshape(VOCABULARY, WIDTH)
NUDGES = {"dpo kto": {".reference.embedding": WRONG}}  # a reference that most answers are above


def config_of(label: str) -> tuple[Any, Any]:
    """Return the algorithm and its settings."""
    name = label.split(maxsplit=1)[0]
    module = algorithms.find(name)
    return module, module.Config(**{**algorithms.preset_fields(name), **UPDATES[label]})


@functools.cache
def before(label: str) -> Any:
    """Return a state in the middle of a run."""
    module, config = config_of(label)
    model = _model()
    return mid_run.stirred(module.begin(model, config), {".updates": 6}, NUDGES.get(label, {}))


def make_batch(garbage: float, *, taught: bool = False) -> Record:
    """Return answers of different lengths after prompts of two tokens. One scene failed and holds
    ``garbage``, one goes on beyond its last token, and two have full scores. If ``taught``, a
    teacher with a larger vocabulary stands beside them."""
    rng = np.random.default_rng(3)
    ids = rng.integers(VOCABULARY, size=(ROWS, TOKENS + 1)).astype(np.int32)
    length, places = rng.integers(3, TOKENS + 1, ROWS), np.arange(TOKENS)[None]
    last = places == length[:, None] - 1
    score = np.where(np.arange(ROWS) % 4 == 1, 1.0, rng.random(ROWS))
    late = np.where(places == length[:, None], 0.3, 0.0)  # earned by what was said before
    valid = np.arange(ROWS) != 5
    score = np.where(valid, score, garbage)
    arrays = {
        "obs": ids[:, :-1],
        "action": ids[:, 1:],
        "reward": (np.where(last, score[:, None], 0.0) + late).astype(np.float32),
        "discount": np.where(last & (np.arange(ROWS) != 2)[:, None], 0, 1).astype(np.float32),
        "last": last,
        "mask": (places >= 2) & (places < length[:, None]),
    }
    extras = {
        "log_prob": (-1.9 + 0.4 * rng.normal(size=(ROWS, TOKENS))).astype(np.float32),
        "turn": np.zeros((ROWS, TOKENS), np.int32),
        "group": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32),
        "score": score.astype(np.float32),
        "valid": valid,
    }
    both = jax.tree.map(jnp.asarray, (arrays, extras))
    beside = {"teacher": _teacher()} if taught else {}
    return Record(next_obs=None, extras=both[1], **both[0], beside=beside)


@functools.cache
def _model() -> LanguageModel:
    return LanguageModel.create(jax.random.key(0), VOCABULARY, WIDTH, FORM, 2)


@functools.cache
def _teacher() -> LanguageModel:
    made = LanguageModel.create(jax.random.key(1), VOCABULARY + 2, WIDTH, FORM, 1)
    return mid_run.stirred(made, {}, {})


def _is_taught(label: str) -> bool:
    module, config = config_of(label)
    return getattr(module.needs(config), "teacher", False)


@functools.cache
def learned(label: str, garbage: float = 50.0) -> Any:
    """Return Sterling's state after the update, and the signals."""
    module, _ = config_of(label)
    batch = make_batch(garbage, taught=_is_taught(label))
    return _compiled(module.__name__)(before(label), batch, jax.random.key(1))


@functools.cache
def _compiled(module: str) -> Any:
    return jax.jit(import_module(module).learn)


@functools.cache
def expected(label: str) -> tuple[Leaves, dict[str, float], dict[str, np.ndarray]]:
    """Return the oracle's state after the update, its metrics and its numbers for each row."""
    module, config = config_of(label)
    batch = make_batch(50.0, taught=_is_taught(label))
    arrays = {**vars(batch), **batch.extras}
    rows = {k: np.asarray(x) for k, x in arrays.items() if k not in ("extras", "beside")}
    rows = {k: x.astype(np.float64) if x.dtype == np.float32 else x for k, x in rows.items()}
    rows |= {name: mid_run.leaves_of(model) for name, model in batch.beside.items()}
    state = mid_run.leaves_of(before(label))
    oracle = import_module(f"oracles.language.{module.__name__.split('.')[-1]}")
    settings = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    drawn = draws.epochs(jax.random.key(1), config, ROWS)
    metrics, samples = oracle.learn(state, rows, settings, drawn)
    return state, metrics, samples
