"""Answer a user's own texts with a trained language model: ``run.policy`` of a language run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling import random_keys
from sterling.language.engine.played_scenes import play_scenes
from sterling.language.scene import BaseScene, Message
from sterling.system.shown_values import shown_value
from sterling.training.language.base_model import language_settings, starting_model
from sterling.training.language.text_world import chat_settings
from sterling.training.policy_player import PlayableRun
from sterling.types import Mistake


class _Asked(BaseScene):
    """One text, and the answer to it."""

    def __init__(self, text: str):
        super().__init__()
        self.answer = ""
        self.ask(0, Message("user", text))

    def hear(self, seat: int, text: str) -> None:
        self.answer = text


def answer_texts(run: PlayableRun, texts: Any, seed: int | None, explore: bool) -> Any:
    """Return one seed's answer to a text, or its answers to a list of texts.

    Each text is the user's only message, in the run's chat template; an answer has at most the
    run's ``limit`` tokens. The likeliest tokens are taken, or with ``explore`` sampled ones, as in
    training. The file of the run's questions is not needed.

    Raise :class:`Mistake` for anything but texts that fit the run's context.
    """
    many = [texts] if isinstance(texts, str) else texts
    settings, at = run.settings, run.place(seed)
    if settings.algorithm == "reward":
        raise Mistake("a reward model scores answers and gives none. Use it as scored:FOLDER:WORLD")
    if not isinstance(many, list | tuple) or not all(isinstance(each, str) for each in many):
        raise Mistake("a language model's observation is a text, or a list of texts")
    scenes = [_Asked(text) for text in many]
    tokenizer = starting_model(language_settings(settings).model).tokenizer
    agent: Any = jax.tree.map(lambda x: x[at : at + 1], run.agent)
    asked = int(np.random.default_rng().integers(2**31)) if explore else next(run.asked)
    keys = random_keys.for_seeds(jnp.asarray([settings.seeds[at]], jnp.int32), "policy", asked)
    voice = chat_settings(settings, tokenizer, settings.context)
    (lines,) = play_scenes(agent, [scenes], voice, keys, explore=explore)
    for line, text in zip(lines, many, strict=True):
        if line.failed:
            raise Mistake(
                f"no answer to {shown_value(text)}: {line.failed} ({voice.context} tokens)"
            )
    answers = [scene.answer for scene in scenes]
    return answers[0] if isinstance(texts, str) else answers
