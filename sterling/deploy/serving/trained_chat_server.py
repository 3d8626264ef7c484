"""The server of a trained language model."""

from __future__ import annotations

from sterling.deploy.serving.chat_server import ChatServer
from sterling.language.endpoint.chat_requests import MOST_LIKELIEST
from sterling.language.engine import slots as engine_slots
from sterling.language.engine.local_sampler import LocalSampler
from sterling.language.engine.slots import SlotShapes
from sterling.training.language.base_model import language_settings, starting_model
from sterling.training.policy_player import PlayableRun
from sterling.types import Mistake


def chat_server(
    run: PlayableRun, seed: int | None, name: str, context: int | None, slots: int
) -> ChatServer:
    """Return the server of one seed's model, under a name, which writes up to ``slots`` answers at
    a time. Messages and answer have at most ``context`` tokens (None: as in training)."""
    settings = run.settings
    if settings.algorithm == "reward":
        raise Mistake("a reward model scores answers and gives none. Serve a model that answers.")
    if slots < 1 or (context is not None and context < 2):
        raise Mistake("--slots must be at least 1, and --context at least 2.")
    whole = context or language_settings(settings).context or settings.context
    tokenizer = starting_model(language_settings(settings).model).tokenizer
    stops = tuple(tokenizer.stops)
    shapes = SlotShapes(slots, whole, whole - 1, stops, has_cuts=True, likeliest=MOST_LIKELIEST)
    model = engine_slots.for_decoding(run.agent.state.model, run.place(seed))
    return ChatServer(LocalSampler(model, shapes), tokenizer, name)
