"""Build the layers around a run's source from the setting ``sources``: ``plr``, ``pool:8,10000``;
several are joined by "+", the innermost first. Names are those of :data:`LAYERS`, and names that
packages register.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from jaxtyping import Array, Key

from sterling.actor import Actor
from sterling.experience.exploration import (
    forward_curiosity,
    hash_counts,
    model_disagreement,
    random_network,
)
from sterling.experience.levels import go_explore, level_buffer, level_replay
from sterling.experience.rollouts import self_play
from sterling.experience.source_layers import Layer
from sterling.field_types import SIZES_TYPE
from sterling.lookup import entry_points, user_imports
from sterling.lookup.name_suggestions import did_you_mean
from sterling.needs.feed import EPISODES
from sterling.system.shown_values import shown_value
from sterling.training.fields.config_fields import make_config
from sterling.types import AnyNeeds, Mistake

LAYERS = {
    each.word: each
    for each in (
        *(level_replay.LAYER, level_buffer.ROBUST, level_buffer.ACCEL),
        *(go_explore.LAYER, self_play.LAYER),
        *(random_network.LAYER, forward_curiosity.LAYER, model_disagreement.LAYER),
        hash_counts.LAYER,
    )
}


def check_sources(
    words: str, name: str, needs: AnyNeeds, *, guided: bool, logged: bool, acts: bool
) -> None:
    """Raise Mistake for an unknown layer, or if the learner ``name`` cannot use layers. ``logged``:
    rows of a log are in its batches; ``acts``: the run has steps."""
    if not words:
        return
    both = [layer.word for layer, _ in parse_layers(words) if layer.begins]
    if len(both) > 1:
        raise Mistake(f"{' and '.join(both)} each choose where episodes begin. Use one of them.")
    if needs.has_feed(EPISODES) or needs.members:
        raise Mistake(f"{name} learns from whole episodes, which sources do not support. "
                      "Leave out sources.")  # fmt: skip
    if needs.adapts_rollouts:
        raise Mistake(f"{name} adapts in levels that it draws itself, which sources do not "
                      "support. Leave out sources.")  # fmt: skip
    if needs.speaks:
        raise Mistake(f"{name} trains a language model, without episodes. Leave out sources.")
    if guided:
        raise Mistake("sources cannot be combined with guide. Leave out one of them.")
    if not acts:
        raise Mistake(f"sources wrap what a run collects, and this run of {name} collects nothing. "
                      "Give steps=N too, or leave out sources.")  # fmt: skip
    if logged and (keep := kept_extras(words)):
        raise Mistake(f"sources={words} needs {', '.join(keep)} of every row, which no dataset "
                      "holds. Leave out data, or that source.")  # fmt: skip


def parse_layers(words: str) -> list[tuple[Layer, Any]]:
    """Return the layers and their Configs, the innermost first; [] for ""."""
    found = []
    for each in words.split("+") if words else ():
        word, _, rest = each.partition(":")
        layer = find_layer(word.strip())
        found.append((layer, read_options(layer, rest.strip())))
    return found


def read_options(layer: Layer, text: str) -> Any:
    """Return a layer's Config with the options of ``VALUE,VALUE`` (all of them, in order) or
    ``NAME=VALUE,NAME=VALUE``; "" gives the defaults. Raise Mistake, which says what to write."""
    kinds = {each.name: str(each.type) for each in dataclasses.fields(layer.Config)}
    parts = [each.strip() for each in text.split(",")] if text else []
    if parts and not kinds:
        raise Mistake(f"sources={layer.word}:{text}: {layer.word} takes no options")
    try:
        if any("=" in each for each in parts):
            pairs = [each.partition("=") for each in parts]
            given = {name.strip(): value.strip() for name, _, value in pairs}
            wrong = len(given) < len(pairs) or not all(equals for _, equals, _ in pairs)
        else:
            given, wrong = dict(zip(kinds, parts, strict=False)), len(parts) not in (0, len(kinds))
        if wrong:
            raise Mistake("give all its options in this order, or each by name, once")
        fields = {name: option_value(kinds.get(name, "str"), x) for name, x in given.items()}
        return make_config(layer, fields, layer.word)
    except Mistake as mistake:
        said = f"sources={layer.word}:{text}: {mistake}; write {layer.example}"
        raise Mistake(said) from None


def option_value(kind: str, text: str) -> Any:
    """Return an option's value in its type; the text itself if it does not fit, which is refused
    where types are checked."""
    plain = kind.removesuffix(" | None")
    if plain == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    with contextlib.suppress(ValueError):
        if plain in ("int", "float", SIZES_TYPE):
            number = float(text)
            return int(number) if plain != "float" and number.is_integer() else number
    return text


def with_absolute_files(words: str) -> str:
    """Return the setting with absolute paths of files, valid from every directory."""
    parts = (each.strip().partition(":") for each in words.split("+"))
    return "+".join(
        user_imports.absolute_reference(word) + colon + rest for word, colon, rest in parts
    )


def layer_files(words: str) -> list[str]:
    """Return the user's files among the layers."""
    parts = [each.partition(":")[0] for each in words.split("+")]
    return [word for word in parts if word.endswith(user_imports.PYTHON_SUFFIX)]


def find_layer(word: str) -> Layer:
    """Return the layer of this name, or the ``LAYER`` of a file."""
    if word in LAYERS:
        return LAYERS[word]
    registered = entry_points.find_plugins(entry_points.SOURCES)
    if word in registered:
        place = registered[word].word
    elif word.endswith(user_imports.PYTHON_SUFFIX):
        place = f"{word}:LAYER"
    else:
        known = [*LAYERS, *registered]
        raise Mistake(f"Unknown sources={word!r}{did_you_mean(word, known, ', '.join(known))}")
    found = user_imports.load(place)
    if not isinstance(found, Layer):
        raise Mistake(
            f"{place} is {shown_value(found)}. Make it a sterling.Layer (docs/extending.md)."
        )
    return found


def wrap_rollouts(words: str, source: Any, keys: Key[Array, "seed"], actor: Actor) -> Any:
    """Return the rollout source, wrapped by the layers."""
    for layer, config in parse_layers(words):
        source = layer.rollouts(source, config, keys, actor)
    return source


def kept_extras(words: str) -> tuple[str, ...]:
    """Return the names of extras that the layers need in the replay."""
    return tuple(name for layer, _ in parse_layers(words) for name in layer.keep)


def with_kept_extras(words: str, needs: Any) -> Any:
    """Return the needs with the layers' extras, and the numbers that tell tasks apart for rows of
    the same task, added to ``keep``."""
    tasks = tuple(name for feed in needs.feeds for name in feed.tasks)
    keep = tuple(dict.fromkeys((*needs.keep, *kept_extras(words), *tasks)))
    return needs if keep == needs.keep else dataclasses.replace(needs, keep=keep)


def wrap_source(words: str, source: Any) -> Any:
    """Return the whole source, wrapped by the layers."""
    for layer, config in parse_layers(words):
        source = layer.whole(source, config)
    return source
