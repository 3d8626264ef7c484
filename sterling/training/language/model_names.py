"""What a model's name means: a new model, or a folder; and the defaults that suit a folder.

The usual defaults suit new models of a few million parameters. On the weights of a large trained
model, steps of 1e-3 undo in a few updates what it learned; ten times larger ones suit adapters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sterling.language.models.causal_lm import MODEL_SIZES
from sterling.language.tokenizer import read_json
from sterling.training.config.run_options import LanguageSettings

BYTES_SUFFIX = "-bytes"  # suffix of a new model's size: its tokens are bytes, not characters
NEW_MODELS = {
    **dict.fromkeys(MODEL_SIZES, ""),
    **{f"{size}{BYTES_SUFFIX}": BYTES_SUFFIX for size in MODEL_SIZES},
}
LORA_FACTOR = 10  # adapters take steps so many times larger


def trained_folder_fields(algorithm: Any, speech: LanguageSettings) -> dict[str, float]:
    """Return the Config fields, by the algorithm's ``TRAINED_FOLDER``, that differ from the usual
    defaults if the weights come from a Hugging Face folder; none if they began at random."""
    trained, adapters = trace_weights(speech.model)
    if not trained:
        return {}
    factor = LORA_FACTOR if speech.lora or adapters else 1
    return {name: round(value * factor, 12) for name, value in algorithm.TRAINED_FOLDER.items()}


def trace_weights(model: str) -> tuple[bool, bool]:
    """Return whether a model's weights come from a Hugging Face folder, itself or through the runs
    that trained them, and whether one of these runs added LoRA adapters.

    A run's model that no longer exists counts as such a folder: smaller steps do no harm.
    """
    adapters, runs = False, 0
    while model not in NEW_MODELS:
        config = read_json(Path(model) / "config.json")
        if "algorithm" not in config:
            return bool(config) or runs > 0, adapters
        speech = config.get("speech") or {}
        model, runs = speech.get("model", LanguageSettings.model), runs + 1
        adapters |= bool(speech.get("lora"))
    return False, adapters
