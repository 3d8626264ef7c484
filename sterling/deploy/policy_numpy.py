"""Run an exported policy with NumPy alone. This file needs nothing else: copy it where it is used.

policy = Policy("policy.npz")          # or policy.safetensors
obs, _ = env.reset()
policy.reset()                         # at the start of every episode, if it has a memory
action = policy(obs)                   # one observation, or a batch of them
obs, reward, *_ = env.step(action)
action = policy(obs, reward)           # policies with a memory are given the last reward
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np


class Policy:
    """A policy from a file that ``sterling export`` wrote; ``description`` holds its metadata."""

    def __init__(self, path: Any, parts: Any = None):
        self.description: dict[str, Any]
        self.description, tensors = parts or read_file(path)
        ports = self.description["inputs"]
        self._inputs = [(p["name"], np.dtype(p["dtype"]), len(p["shape"])) for p in ports]
        self._obs = [p for p in ports if p["role"] == "obs"]
        self._noise = [p for p in ports if p["role"] == "noise"]
        self._wants_reward = any(p["role"] == "reward" for p in ports)
        names = [p["name"] for p in ports] + self.description["constants"]
        names += [node["output"] for node in self.description["nodes"]]
        self._at = {name: at for at, name in enumerate(names)}
        self._start = [tensors.get(name) for name in names]
        self._program = [self._compiled(node) for node in self.description["nodes"]]
        self._outputs = self.description["outputs"]
        self._sources = [self._at[port["source"]] for port in self._outputs]
        self._plain = len(ports) == len(self._outputs) == 1 and not self._obs[0]["path"]
        self._shape = tuple(ports[0]["shape"][1:]) if ports[0]["dtype"] == "float32" else None
        self._initial = {
            p["name"]: tensors["initial/" + p["name"]] for p in ports if p["role"] == "state"
        }
        self._state: dict[str, Any] = {}
        self._random = np.random.default_rng()

    def _compiled(self, node: dict[str, Any]) -> tuple[Any, list[int], int]:
        """Return a node's function, the places of its inputs, and the place of its output."""
        made = OPERATIONS[node["operation"]](np.dtype(node["dtype"]), node)
        return made, [self._at[name] for name in node["inputs"]], self._at[node["output"]]

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the outputs by name for inputs by name, with a leading batch axis. Memory and
        noise are inputs, so this is a pure function."""
        values = self.every_value(inputs)
        return {port["name"]: values[port["source"]] for port in self._outputs}

    def every_value(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return every array of the computation by its name."""
        given = [np.asarray(inputs[name], dtype) for name, dtype, _ in self._inputs]
        return dict(zip(self._at, self._computed(given), strict=True))

    def _computed(self, given: list[Any]) -> list[Any]:
        values = self._start.copy()
        values[: len(given)] = given
        for function, places, output in self._program:
            values[output] = function(*[values[place] for place in places])
        return values

    def reset(self, seed: int | None = None) -> None:
        """Forget the episode; with ``seed``, also begin the random numbers of sampled actions."""
        self._state = {}
        if seed is not None:
            self._random = np.random.default_rng(seed)

    def __call__(self, obs: Any, reward: Any = 0.0) -> Any:
        """Return the action for one observation, or the actions for a batch; dict and tuple
        observations as Gymnasium has them. Policies with a memory remember the episode. Raise
        ValueError for an observation that is none of the environment's (see ``checked``)."""
        if self._plain:
            given = self._checked(obs)
            if given.ndim == self._inputs[0][2]:
                return self._computed([given])[self._sources[0]]
            return self._computed([given[None]])[self._sources[0]][0]
        found = {p["name"]: checked(entry(obs, p["path"]), p) for p in self._obs}
        leads = {found[p["name"]].shape[: 1 - len(p["shape"]) or None] for p in self._obs}
        if len(leads) > 1:
            raise ValueError(f"the observation's entries are batches of several sizes: {leads}")
        one = leads == {()}
        inputs = {name: x[None] if one else x for name, x in found.items()}
        batch = len(next(iter(inputs.values())))
        made = self.run({**inputs, **self._extras(batch, reward)})
        self._state = {k.removeprefix("next_"): x for k, x in made.items() if k[:5] == "next_"}
        actions = {keys(p): made[p["name"]] for p in self._outputs if p["role"] == "action"}
        return arranged({path: x[0] if one else x for path, x in actions.items()})

    def _checked(self, obs: Any) -> Any:
        """Return ``checked`` of an observation that is one array; at once for floats of its shape
        that are no larger than 1e19."""
        x = np.asarray(obs)
        if x.dtype.kind == "f" and x.shape == self._shape and np.vdot(x, x) < 1e38:
            return x.astype(np.float32, copy=False)
        return checked(x, self._obs[0])

    def _extras(self, batch: int, reward: Any) -> dict[str, Any]:
        """Return memory, reward and noise for a batch."""
        state = self._state or {
            name: np.repeat(x[None], batch, 0) for name, x in self._initial.items()
        }
        more = dict(state)
        if self._wants_reward:
            more["reward"] = np.broadcast_to(np.asarray(reward, np.float32), (batch,))
        for port in self._noise:
            shape = [-size * batch if size < 0 else size for size in port["shape"]]
            draw = self._random.standard_normal if port["law"] == "normal" else self._random.random
            more[port["name"]] = draw(shape, np.float32)
        return more


def read_file(path: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the description and the arrays of an .npz or .safetensors file."""
    if str(path).endswith(".npz"):
        with np.load(path) as file:
            tensors = {name: file[name] for name in file.files}
        return json.loads(tensors.pop("description").item()), tensors
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    about = json.loads(header.pop("__metadata__")["description"])
    kinds = {"F32": "f4", "F64": "f8", "I32": "i4", "I64": "i8", "U8": "u1", "I8": "i1",
             "BOOL": "?", "I16": "i2", "U16": "u2", "U32": "u4", "F16": "f2"}  # fmt: skip
    made = {}
    for name, one in header.items():
        low, high = one["data_offsets"]
        flat = np.frombuffer(data[start + low : start + high], kinds[one["dtype"]])
        made[name] = flat.reshape(one["shape"])
    return about, made


def entry(obs: Any, path: str) -> Any:
    """Return one entry of a dict or tuple observation."""
    try:
        for word in map(unescaped, path.split("/") if path else ()):
            obs = obs[word] if isinstance(obs, dict) else obs[int(word)]
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"the observation has no entry {path!r}") from error
    return obs


def checked(value: Any, port: dict[str, Any]) -> Any:
    """Return an entry of an observation, or a batch of it, in the policy's type. Raise ValueError
    for another shape, NaN or infinity, fractions of whole numbers, numbers outside a type, choices
    that there are not, and a mask that leaves a choice without an option."""
    x, dtype = np.asarray(value), np.dtype(port["dtype"])
    shape = tuple(port["shape"][1:])
    if x.shape not in (shape, (*x.shape[:1], *shape)):
        wrong = f"must have the shape {shape}, or that of a batch; got {x.shape}"
    elif x.dtype.kind not in "biuf":
        wrong = f"has type {x.dtype}, but the policy takes {dtype}"
    elif dtype.kind == "f":
        with np.errstate(over="ignore"):  # what is too large is found as infinity
            x = x.astype(dtype, copy=False)
        wrong = "" if np.isfinite(x).all() else "holds NaN or infinity"
    else:
        wrong = whole_fault(x, dtype, port)
    if wrong:
        name = f"the observation's entry {port['path']!r}" if port["path"] else "the observation"
        raise ValueError(f"{name} {wrong}, so no action can be computed")
    return x.astype(dtype, copy=False)


def whole_fault(x: Any, dtype: Any, port: dict[str, Any]) -> str:
    """Return what is wrong with whole numbers, choices or a mask; "" if nothing."""
    if dtype.kind in "iu" and x.dtype != dtype:
        limits = np.iinfo(dtype)
        inside = np.isfinite(x) & (x >= limits.min) & (x <= limits.max)
        if not (inside & (x == np.floor(x))).all():
            return f"must hold whole numbers from {limits.min} to {limits.max} ({dtype})"
    low, high = (np.reshape(port.get(end, []), -1) for end in ("low", "high"))
    if high.size:
        flat = x.reshape(-1, high.size)
        if ((flat < low) | (flat > high)).any():
            return f"must hold choices from {low.tolist()} to {high.tolist()}"
    sizes = port.get("options", [])
    parts = np.split(x.reshape(-1, sum(sizes)), np.cumsum(sizes)[:-1], -1) if sizes else []
    if not all(part.any(-1).all() for part in parts):
        return "leaves a choice without an option"
    return ""


def unescaped(word: str) -> str:
    """Return a name of a path, in which ~1 stands for / and ~0 for ~ (RFC 6901)."""
    return word.replace("~1", "/").replace("~0", "~")


def keys(port: dict[str, Any]) -> tuple[Any, ...]:
    """Return the path of an action: numbers in a tuple, names in a dict. Files without them say
    only the path, where a name of digits looks like a number."""
    words = port["path"].split("/") if port["path"] else []
    guessed = [int(word) if word.isdigit() else unescaped(word) for word in words]
    return tuple(port.get("keys", guessed))


def arranged(leaves: dict[tuple[Any, ...], Any]) -> Any:
    """Return actions by the keys of their paths as one array, a tuple or a dict."""
    if list(leaves) == [()]:
        return leaves[()]
    parts = {
        head: arranged({path[1:]: x for path, x in leaves.items() if path[0] == head})
        for head in dict.fromkeys(path[0] for path in leaves)
    }
    return tuple(parts.values()) if all(isinstance(head, int) for head in parts) else parts


def _divide(a: Any, b: Any) -> Any:
    return a / b if a.dtype.kind == "f" else (a - np.fmod(a, b)) // b


def _convolve(x: Any, kernel: Any, strides: Any, pads: Any) -> Any:
    x = np.pad(x, [(0, 0), *map(tuple, pads), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], (1, 2))
    windows = windows[:, :: strides[0], :: strides[1]]
    return np.tensordot(windows, kernel, ([4, 5, 3], [0, 1, 2]))


def _broadcast(dtype: Any, node: dict[str, Any]) -> Any:
    """Repeat the first input to a shape, whose batch size is that of the second."""

    def repeated(x: Any, like: Any = ()) -> Any:
        return np.broadcast_to(x, [-n * len(like) if n < 0 else n for n in node["shape"]])

    return repeated


def _fixed(function: Any) -> Any:
    return lambda dtype, node: function


def _logistic(x: Any) -> Any:
    return 0.5 * np.tanh(0.5 * x) + 0.5  # cannot overflow


def _reduction(function: Any) -> Any:
    return lambda dtype, node: lambda x: function(x, axis=tuple(node["axes"]), dtype=dtype)


def _extreme(function: Any) -> Any:
    return lambda dtype, node: lambda x: function(x, axis=tuple(node["axes"]))


def _sliced(dtype: Any, node: dict[str, Any]) -> Any:
    cut = slice(node["start"], node["stop"], node["step"])
    index = (*[slice(None)] * node["axis"], cut)
    return lambda x: x[index]


def _reshaped(dtype: Any, node: dict[str, Any]) -> Any:
    shape = [-1 if size < 0 else size for size in node["shape"]]
    return lambda x: x.reshape(shape)


OPERATIONS = {
    **{name: _fixed(getattr(np, name)) for name in ("exp", "log", "log1p", "expm1", "tanh")},
    **{name: _fixed(getattr(np, name)) for name in ("sqrt", "abs", "sign", "floor", "ceil")},
    **{name: _fixed(getattr(np, name)) for name in ("rint", "sin", "cos", "where", "matmul")},
    "neg": _fixed(np.negative),
    "not": _fixed(np.logical_not),
    "logistic": _fixed(_logistic),
    "rsqrt": _fixed(lambda x: 1 / np.sqrt(x)),
    "erf": lambda dtype, node: np.vectorize(math.erf, otypes=[dtype]),
    **{"add": _fixed(np.add), "sub": _fixed(np.subtract), "mul": _fixed(np.multiply)},
    **{"div": _fixed(_divide), "max": _fixed(np.maximum), "min": _fixed(np.minimum)},
    **{"pow": _fixed(np.power), "rem": _fixed(np.fmod)},
    **{"and": _fixed(np.logical_and), "or": _fixed(np.logical_or), "eq": _fixed(np.equal)},
    **{"ne": _fixed(np.not_equal), "lt": _fixed(np.less), "le": _fixed(np.less_equal)},
    **{"gt": _fixed(np.greater), "ge": _fixed(np.greater_equal)},
    "cast": lambda dtype, node: lambda x: x.astype(dtype),
    "broadcast": _broadcast,
    "reshape": _reshaped,
    "transpose": lambda dtype, node: lambda x: x.transpose(node["axes"]),
    "concat": lambda dtype, node: lambda *parts: np.concatenate(parts, node["axis"]),
    "slice": _sliced,
    "take": lambda dtype, node: lambda x, at: np.take(x, at, node["axis"]),
    **{"sum": _reduction(np.sum), "prod": _reduction(np.prod)},
    **{"maximum": _extreme(np.max), "minimum": _extreme(np.min)},
    **{"any": _extreme(np.any), "all": _extreme(np.all)},
    "argmax": lambda dtype, node: lambda x: x.argmax(node["axis"]).astype(dtype),
    "argmin": lambda dtype, node: lambda x: x.argmin(node["axis"]).astype(dtype),
    "conv": lambda dtype, node: lambda x, k: _convolve(x, k, node["strides"], node["pads"]),
}
