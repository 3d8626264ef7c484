"""What the speed benchmark measures: shapes, and what they cost at least."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from sterling import language
from sterling.language.models.causal_lm import LanguageModel, tiny
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds import find_world
from sterling.nets.attention.rotary import rotary_rates
from sterling.nets.transformer import TransformerForm

ROOM, NEW = 32, 64  # tokens of a prompt, and of an answer
ROWS = (8, 64, 256)
SLOTS = 64
SIZES = ("tiny", "small")
WORLD, LEVELS = "reverse-text", "1-2"
QUESTION = 16  # tokens of one, about
PROMPTS = (1, 4, 16)  # of an iteration: 8 rows are TRL's default batch
ITERATION = {"group": 8, "limit": 32, "lr": 1e-6}
SKEWED = {"rows": 512, "room": 16, "limit": 128, "slots": 64, "stops": 3}
SHAPES = {"qwen2.5-0.5b": (896, 24, 14, 2, 4864, 151_936)}  # width, layers, heads, key heads, ...


@dataclasses.dataclass(frozen=True)
class Case:
    """Something to be timed."""

    name: str
    group: str  # those of one group are measured in turn
    side: str  # "sterling" or "peers"
    request: dict[str, Any]
    flops: float = 0.0  # of one call's matrix products
    step_bytes: float = 0.0  # that a step of decoding reads at least

    def described(self) -> dict[str, Any]:
        """Plain values, without what is only true today."""
        plain = dataclasses.asdict(self)
        hidden = ("folder", "questions")
        plain["request"] = {k: v for k, v in self.request.items() if k not in hidden}
        return plain


def all_cases(folders: dict[str, Path]) -> list[Case]:
    """Everything that is measured on a CPU."""
    found = []
    for size in SIZES:
        for rows in ROWS:
            found += _sampling(f"{size} x{rows}", folders[size], rows, SLOTS)
    found += _slots(folders["tiny"]) + _iteration(folders["tiny"])
    return found


def shape_cases(folders: dict[str, Path], rows: list[int]) -> list[Case]:
    """Sampling with a model of published size; the fewer tokens show what reading prompts took."""
    found = []
    for shape, folder in folders.items():
        for count in rows:
            found += _sampling(f"{shape} x{count}", folder, count, count, first=True)
    return found


def write_models(folder: Path, shape: str, layers: int) -> dict[str, Path]:
    """Random weights, as folders that both sides open."""
    tokenizer = Tokenizer.characters()
    if shape:
        models = {shape: shaped(shape, layers)}
    else:
        models = {size: tiny(tokenizer.vocabulary, size) for size in SIZES}
    return {name: language.save(folder / name, each, tokenizer) for name, each in models.items()}


def shaped(shape: str, layers: int = 0) -> LanguageModel:
    """Random weights in bfloat16 of a published model's shape; ``layers`` 0: as many as it has."""
    width, published, heads, key_heads, hidden, vocabulary = SHAPES[shape]
    rates = rotary_rates(width // heads, 1e6)
    form = TransformerForm(
        *(heads, key_heads, width // heads, hidden),
        norm="rms",
        gated=True,
        biases=(True, False, False),
        rates=rates,
    )

    @jax.jit
    def create(key: jax.Array) -> LanguageModel:
        model = LanguageModel.create(key, vocabulary, width, form, layers or published)
        return jax.tree.map(lambda x: x.astype(jnp.bfloat16), model)

    return create(jax.random.key(0))


def _sampling(name: str, folder: Path, rows: int, slots: int, *, first: bool = False) -> list[Case]:
    ask = {"kind": "sampling", "folder": str(folder), "rows": rows, "room": ROOM}
    model = language.load(folder)[0]
    made: dict[str, Any] = {
        "flops": flops(model, rows, ROOM + NEW - 1, NEW),
        "step_bytes": step_bytes(model, rows),
    }
    bound = _bound(name, first)
    for side in ("sterling", "peers"):
        more = {"slots": min(slots, rows)} if side == "sterling" else {}
        bound.append(Case(f"{name}/{side}", name, side, ask | more | {"new": NEW}, **made))
        if first:
            bound.append(Case(f"{name}/{side} first", name, side, ask | more | {"new": 1}))
    return bound


def _bound(group: str, shape: bool) -> list[Case]:
    """What the machine can do meanwhile: matrix products, and for large models reading memory."""
    small = jax.default_backend() == "cpu"
    matrix = {"kind": "matrix", "size": 1024 if small else 8192, "chunk": 40}
    matrix |= {"dtype": "bfloat16" if shape else "float32"}
    found = [Case(f"{group}/matrix", group, "sterling", matrix)]
    if shape:
        memory = {"kind": "memory", "mebibytes": 512 if small else 4096}
        found.append(Case(f"{group}/memory", group, "sterling", memory))
    return found


def _slots(folder: Path) -> list[Case]:
    ask = {"kind": "skewed", "folder": str(folder), **SKEWED}
    ways = {"refill": {"refill": True}, "batches": {"refill": False}}
    return [Case(f"slots/{name}", "slots", "sterling", ask | way) for name, way in ways.items()]


def _iteration(folder: Path) -> list[Case]:
    world = find_world(WORLD)
    questions = []
    for seed in range(256):
        turn = world.begin(seed, 1 + seed % 2).turn
        assert turn is not None
        questions.append(turn.messages[-1].content)
    ask = {"kind": "grpo", "folder": str(folder), **ITERATION}
    words = {
        "sterling": {"environment": WORLD, "levels": LEVELS},
        "peers": {"questions": questions},
    }
    model, found = language.load(folder)[0], []
    for prompts in PROMPTS:
        rows = prompts * ITERATION["group"]
        name, most = f"grpo x{rows}", QUESTION + ITERATION["limit"]
        said = flops(model, rows, most - 1, ITERATION["limit"])
        learned = 3 * flops(model, rows, most, most)  # forward, and twice as much backward
        for side, own in words.items():
            request = ask | own | {"prompts": prompts}
            found.append(Case(f"{name}/{side}", name, side, request, flops=said + learned))
        found += _bound(name, False)
    return found


def flops(model: LanguageModel, rows: int, tokens: int, scored: int) -> float:
    """Floating-point operations of the matrix products that reading ``rows`` lines needs: weights
    of every token, scores of the last ``scored``, attention to the tokens before."""
    form = model.stack.form
    weights = sum(x.size for x in jax.tree.leaves(model.stack) if x.ndim == 3)
    layers = len(model.stack.layers)
    pairs = tokens * (tokens + 1) / 2  # (token, token it sees)
    attention = layers * form.heads * form.size * 2 * pairs
    head = scored * model.embedding.size
    return 2.0 * rows * (tokens * weights + attention + head)


def step_bytes(model: LanguageModel, rows: int) -> float:
    """Bytes that a step reads in the mean: all weights, and of every row the tokens before."""
    form, kind = model.stack.form, model.embedding.dtype.itemsize
    parameters = sum(x.size for x in jax.tree.leaves(model))
    layers = len(model.stack.layers)
    token = 2 * layers * form.key_heads * form.size
    return float(kind * (parameters + rows * token * (ROOM + NEW / 2)))
