"""Rotary positions as config.json tells them: the angle by which each pair turns per token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sterling.nets.transformer import BASE, Form, rotary_rates
from sterling.types import Mistake


def rates(config: dict[str, Any], size: int, where: str) -> tuple[float, ...]:
    """Angles per token: as they were trained, divided (position interpolation, Chen 2023,
    arXiv:2306.15595), or divided where waves are long (Llama 3.1)."""
    whole = "take the config.json that the model came with"
    rope = _said(config)
    if rope is None:
        raise Mistake(f"{where}: what it says of rotary positions is no object; {whole}")
    kind = rope["rope_type"]
    if kind not in ("default", "linear", "llama3"):
        raise Mistake(f"{where}: positions of type {kind!r} are not known; use default or llama3")
    if rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) not in (1, None):
        raise Mistake(f"{where}: heads that turn in part are not known; use a whole rotary model")
    try:
        with np.errstate(divide="raise", invalid="raise"):
            rates = np.asarray(rotary_rates(size, float(rope["rope_theta"])))
            if kind == "linear":
                rates = rates / float(rope["factor"])
            elif kind == "llama3":
                rates = _stretched(rates, rope, config)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise Mistake(
            f"{where}: positions of type {kind} lack or garble {error}; {whole}"
        ) from error
    return tuple(float(rate) for rate in rates)


def rope(form: Form) -> dict[str, Any]:
    """The base and the divisor that rates were made of."""
    rates, size = form.rates, form.size
    factor = 1.0 / rates[0]
    ratio = rates[-1] / rates[0]
    theta = BASE if len(rates) == 1 else float(f"{ratio ** (-size / (size - 2)):.9g}")
    made = np.asarray(rotary_rates(size, theta)) / factor
    if len(rates) != size // 2 or not np.allclose(made, rates, rtol=1e-7, atol=0.0):
        raise Mistake("these rotary rates follow no config.json; save the model as it was loaded")
    found = {"rope_type": "default", "rope_theta": theta}
    return found if factor == 1.0 else found | {"rope_type": "linear", "factor": factor}


def _said(config: dict[str, Any]) -> dict[str, Any] | None:
    """Of rotary positions: transformers 5 has all in rope_parameters, 4 in two places; where a
    file has both, transformers 5 takes the older. None where it says it otherwise."""
    said = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(said, dict):
        return None
    found = {"rope_theta": config.get("rope_theta", BASE), **said}
    return found | {"rope_type": found.get("rope_type") or found.get("type") or "default"}


def _stretched(rates: np.ndarray, rope: dict[str, Any], config: dict[str, Any]) -> np.ndarray:
    """Llama 3.1's rates: waves that fit into the first context less than ``low`` times are
    stretched by ``factor``, those that fit more than ``high`` times are not, between is linear."""
    factor, low, high = (
        float(rope[name]) for name in ("factor", "low_freq_factor", "high_freq_factor")
    )
    context = float(
        rope.get("original_max_position_embeddings") or config["max_position_embeddings"]
    )
    fits = context * rates / (2 * math.pi)
    kept = np.clip((fits - low) / (high - low), 0.0, 1.0)
    return kept * rates + (1.0 - kept) * rates / factor
