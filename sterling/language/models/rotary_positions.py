"""Rotary positions in config.json: the angle by which each pair of features turns per token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sterling.nets.attention.rotary import ROTARY_BASE, rotary_rates
from sterling.nets.transformer import TransformerForm
from sterling.system.mistake import Mistake

PARTLY_ROTARY = ("phi3",)  # families that turn the first numbers of each head alone


def read_rates(config: dict[str, Any], size: int, where: str) -> tuple[float, ...]:
    """Return the angles per token: as trained, divided (position interpolation, Chen 2023,
    arXiv:2306.15595), or divided for long wavelengths only (Llama 3.1)."""
    whole = "take the config.json that the model came with"
    rope = _rope_settings(config)
    if rope is None:
        raise Mistake(f"{where}: its settings of rotary positions are not a JSON object; {whole}")
    kind = rope["rope_type"]
    if kind not in ("default", "linear", "llama3"):
        raise Mistake(
            f"{where}: positions of type {kind!r} are not supported; use default or llama3"
        )
    count = _rotary_numbers(config, rope, size, where)
    try:
        with np.errstate(divide="raise", invalid="raise"):
            rates = np.asarray(rotary_rates(count, float(rope["rope_theta"])))
            if kind == "linear":
                rates = rates / float(rope["factor"])
            elif kind == "llama3":
                rates = _llama3_rates(rates, rope, config)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise Mistake(
            f"{where}: positions of type {kind}: missing or invalid {error}; {whole}"
        ) from error
    return tuple(float(rate) for rate in rates)


def read_unrotated(config: dict[str, Any], layers: int, where: str) -> tuple[int, ...]:
    """Return the layers without rotary positions: SmolLM3's no_rope_layers has a 0 for each, and
    without it every no_rope_layer_interval-th layer is one."""
    if config["model_type"] != "smollm3":
        return ()
    every = config.get("no_rope_layer_interval", 4)
    flags = config.get("no_rope_layers")
    if flags is None and isinstance(every, int) and every > 0:
        flags = [int((layer + 1) % every != 0) for layer in range(layers)]
    if (
        not isinstance(flags, list)
        or len(flags) < layers
        or any(each not in (0, 1) for each in flags)
    ):
        raise Mistake(
            f"{where}: no_rope_layers is not a list of 0 or 1 for each of {layers} layers; "
            "take the config.json that the model came with"
        )
    return tuple(layer for layer in range(layers) if not flags[layer])


def rope_parameters(form: TransformerForm) -> dict[str, Any]:
    """Return config.json's rope_parameters (the base, and a divisor if there is one) that give a
    form's rates."""
    rates, size = form.rates, 2 * len(form.rates)
    factor = 1.0 / rates[0]
    ratio = rates[-1] / rates[0]
    theta = ROTARY_BASE if len(rates) == 1 else float(f"{ratio ** (-size / (size - 2)):.9g}")
    made = np.asarray(rotary_rates(size, theta)) / factor
    if not np.allclose(made, rates, rtol=1e-7, atol=0.0):
        raise Mistake(
            "config.json cannot state these rotary rates; save the model as it was loaded"
        )
    found = {"rope_type": "default", "rope_theta": theta}
    found |= {"partial_rotary_factor": size / form.size} if size < form.size else {}
    return found if factor == 1.0 else found | {"rope_type": "linear", "factor": factor}


def _rotary_numbers(config: dict[str, Any], rope: dict[str, Any], size: int, where: str) -> int:
    """Return how many numbers of each head are turned: all, or in Phi-3 the first few."""
    name = "partial_rotary_factor"
    factor = rope.get(name, config.get(name))
    if factor is None or factor == 1:
        return size
    if config["model_type"] not in PARTLY_ROTARY:
        raise Mistake(f"{where}: partly rotary heads are not supported; use a fully rotary model")
    count = int(size * factor) if isinstance(factor, float) and 0.0 < factor < 1.0 else 0
    if count < 2 or count % 2:
        raise Mistake(
            f"{where}: {name} {factor!r} of {size} numbers is no even number of them; "
            "take the config.json that the model came with"
        )
    return count


def _rope_settings(config: dict[str, Any]) -> dict[str, Any] | None:
    """Return the settings of rotary positions, or None if they are not a JSON object. transformers
    5 keeps all of them in rope_parameters, transformers 4 in two places; if a file has both,
    transformers 5 takes the older."""
    settings = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(settings, dict):
        return None
    found = {"rope_theta": config.get("rope_theta", ROTARY_BASE), **settings}
    return found | {"rope_type": found.get("rope_type") or found.get("type") or "default"}


def _llama3_rates(rates: np.ndarray, rope: dict[str, Any], config: dict[str, Any]) -> np.ndarray:
    """Return Llama 3.1's rates: wavelengths that fit into the original context less than ``low``
    times are stretched by ``factor``, those that fit more than ``high`` times are not; linear
    between."""
    factor, low, high = (
        float(rope[name]) for name in ("factor", "low_freq_factor", "high_freq_factor")
    )
    context = float(
        rope.get("original_max_position_embeddings") or config["max_position_embeddings"]
    )
    fits = context * rates / (2 * math.pi)
    kept = np.clip((fits - low) / (high - low), 0.0, 1.0)
    return kept * rates + (1.0 - kept) * rates / factor
