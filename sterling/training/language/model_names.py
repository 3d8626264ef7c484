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
    defaults if the model is a Hugging Face folder; none for a new model or a run's."""
    fields = algorithm.TRAINED_FOLDER
    if not is_trained_folder(speech.model):
        return {}
    factor = LORA_FACTOR if speech.lora else 1
    return {name: round(value * factor, 12) for name, value in fields.items()}


def is_trained_folder(model: str) -> bool:
    """Whether ``model`` is a Hugging Face folder; no size of new models, and no run's folder."""
    path = Path(model) / "config.json"
    return model not in NEW_MODELS and path.is_file() and "algorithm" not in read_json(path)
