"""Sources around a run's own, as its settings say in words: ``plr``, ``pool:8,10000``, and several
joined by "+", the inner first. The names are those of :data:`LAYERS` and what packages register.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxtyping import Array, Key

from sterling import importing, plugins
from sterling.actor import Actor
from sterling.experience import go_explore, level_buffer, level_replay, opponents
from sterling.experience.layers import Layer, Numbers
from sterling.naming import hint
from sterling.needs import EPISODES
from sterling.types import AnyNeeds, Mistake

LAYERS = {
    each.word: each
    for each in (
        *(level_replay.LAYER, level_buffer.ROBUST, level_buffer.ACCEL),
        *(go_explore.LAYER, opponents.LAYER),
    )
}


def check_sources(words: str, name: str, needs: AnyNeeds, *, alone: bool) -> None:
    """Raise Mistake where a word is not known or nobody can keep to it: ``alone`` says that the
    learner ``name`` lives by itself, without a log or a guide."""
    if not words:
        return
    both = [layer.word for layer, _ in read(words) if layer.begins]
    if len(both) > 1:
        raise Mistake(f"{' and '.join(both)} each say where every episode begins; name one of them")
    if needs.of(EPISODES):
        raise Mistake(f"{name}'s episodes begin as the world says; leave out sources")
    if needs.speaks:
        raise Mistake(f"{name} lives no episodes; leave out sources")
    if not alone:
        raise Mistake("sources cannot be chosen beside a log or a guide; leave out one of them")


def read(words: str) -> list[tuple[Layer, Numbers]]:
    """The layers and their numbers, the inner first; none for ""."""
    found = []
    for each in words.split("+") if words else ():
        word, _, rest = each.partition(":")
        layer = named(word.strip())
        found.append((layer, layer.read(rest.strip())))
    return found


def absolute(words: str) -> str:
    """The words, files by their whole paths: they hold in every directory."""
    parts = (each.strip().partition(":") for each in words.split("+"))
    return "+".join(importing.absolute(word) + colon + rest for word, colon, rest in parts)


def files(words: str) -> list[str]:
    """The files that layers come from."""
    parts = [each.partition(":")[0] for each in words.split("+")]
    return [word for word in parts if word.endswith(importing.SUFFIX)]


def named(word: str) -> Layer:
    """The layer of this name, or that which a file offers."""
    if word in LAYERS:
        return LAYERS[word]
    registered = plugins.registered(plugins.SOURCES)
    if word in registered:
        place = registered[word].word
    elif word.endswith(importing.SUFFIX):
        place = f"{word}:LAYER"
    else:
        known = [*LAYERS, *registered]
        raise Mistake(f"sources={word!r} is not known{hint(word, known, ', '.join(known))}")
    found = importing.load(place)
    if not isinstance(found, Layer):
        raise Mistake(f"{place} is {found!r:.60}; make it a sterling.Layer (docs/extending.md)")
    return found


def lived(words: str, source: Any, keys: Key[Array, "seed"], actor: Actor) -> Any:
    """What lives step by step, with the layers around it."""
    for layer, numbers in read(words):
        source = layer.rollouts(source, numbers, keys, actor)
    return source


def keeps(words: str) -> tuple[str, ...]:
    """What is asked about the rows of a replay."""
    return tuple(name for layer, _ in read(words) for name in layer.keep)


def kept(words: str, needs: Any) -> Any:
    """The needs of a replay that keeps what is asked about its rows."""
    keep = keeps(words)
    return dataclasses.replace(needs, keep=(*needs.keep, *keep)) if keep else needs


def whole(words: str, source: Any) -> Any:
    """All of it, with the layers around it."""
    for layer, numbers in read(words):
        source = layer.whole(source, numbers)
    return source
