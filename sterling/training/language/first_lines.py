"""The first lines of a language run: its model, parameters, chat template and texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from sterling.language.models import lora
from sterling.training.config.settings import Settings
from sterling.training.fields.text_budget import count_texts
from sterling.training.language.base_model import (
    StartingModel,
    language_settings,
    language_spec,
    prepare_model,
    starting_model,
)
from sterling.training.language.held_out_texts import count_held_out
from sterling.training.language.model_names import NEW_MODELS, trace_weights


def first_lines(settings: Settings) -> list[str]:
    """Return a line on the model, and for a run on a file of texts one on these and one that says
    that nothing is evaluated, if nothing is."""
    speech = language_settings(settings)
    base = starting_model(speech.model)
    total, trained = count_parameters(settings, base)
    start = (
        "begins from random weights (--model FOLDER begins from a trained model)"
        if speech.model in NEW_MODELS
        else "begins from trained weights"
    )
    adapters = f" (LoRA adapters of rank {speech.lora})" if speech.lora else ""
    part = "all" if trained == total else f"{trained:,}{adapters}"
    lines = [
        f"model {speech.model} {start}: {total:,} parameters, {part} trained; "
        f"chat template: {base.tokenizer.template_words}{_step_size(settings)}"
    ]
    held_out, _ = count_held_out(settings) if settings.holds_out_texts else (0, 0)
    if speech.texts:
        lines.append(_texts_line(settings, speech.texts, held_out))
    if not settings.environment:
        logged = (
            "held_out/loss is that of rows never trained on"
            if held_out
            else "the logged loss is that of the training texts (--held-out 0.1 keeps a tenth of "
            "the rows back and logs theirs)"
        )
        lines.append(f"no environment is named, so answers are not evaluated: {logged}")
    return lines


def _step_size(settings: Settings) -> str:
    """Return in words the step size on weights of a Hugging Face folder; its default is small."""
    lr = None if "lr" in settings.schedules else getattr(settings.config, "lr", None)
    if lr is None or not trace_weights(language_settings(settings).model)[0]:
        return ""
    return f"; lr {lr:g} (--lr changes it)"


def _texts_line(settings: Settings, texts: str, held_out: int) -> str:
    """Return the number of texts, how many are held out, and how often training passes over the
    others."""
    count, batch = count_texts(texts), settings.config.batch
    passes = settings.updates * batch / (count - held_out)
    kept, others = (f"; {held_out:,} of {count:,} rows are held out", "the others")
    return (
        f"texts: {count:,} in {Path(texts).name}{kept if held_out else ''}; {settings.updates:,} "
        f"updates of {batch:,} texts pass over {others if held_out else 'them'} {passes:.3g} times"
    )


def count_parameters(settings: Settings, base: StartingModel) -> tuple[int, int]:
    """Return how many parameters one seed's model has, and how many of them are trained."""

    def begin() -> tuple[Any, Any]:
        """Return the model, and the part of it that is trained."""
        key, made = jax.random.key(0), language_spec(settings, base).model
        if made is None:
            first = jax.tree.map(lambda x: x[0], base.models)
            model = prepare_model(first, settings, key)
        else:
            model = made(key)
        return model, lora.split_trainable(model)[0]

    total, trained = (
        sum(leaf.size for leaf in jax.tree.leaves(part)) for part in jax.eval_shape(begin)
    )
    return total, trained
