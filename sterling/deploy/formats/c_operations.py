"""The loops in C for each operation of a policy graph, for a batch of one."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from sterling.deploy.graph.policy_graph import BINARY, UNARY

C_TYPES = {
    **{"float32": "float", "float64": "double", "bool": "bool"},
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
FUNCTIONS = {  # of libm; the suffix f is added for float
    **{name: name for name in ("exp", "log", "log1p", "expm1", "tanh", "sqrt", "floor", "ceil")},
    **{name: name for name in ("rint", "erf", "sin", "cos", "pow")},
}
SIGNS = {
    **{"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&&", "or": "||", "eq": "=="},
    **{"ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
}
STARTS = {"sum": "0", "prod": "1", "any": "false", "all": "true"}


@dataclasses.dataclass(frozen=True)
class Operand:
    """An array in C: the expression that names it, its shape, its type."""

    text: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """The number of entries."""
        return math.prod(self.shape)

    @property
    def strides(self) -> list[int]:
        """How far apart neighbouring entries of every axis lie."""
        return [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]


class Emitter:
    """Writes the statements of one node."""

    def __init__(self, output: Operand, inputs: list[Operand], how: dict[str, Any]):
        self.output, self.inputs, self.how = output, inputs, how

    def lines(self, operation: str) -> list[str]:
        """Return the statements."""
        if operation in UNARY or operation in BINARY or operation in ("where", "cast"):
            return self._elementwise(operation)
        if operation in ("sum", "prod", "any", "all", "maximum", "minimum"):
            return self._reduce(operation)
        if operation in ("argmax", "argmin"):
            return self._arg(operation)
        found: list[str] = getattr(self, f"_{operation}")()
        return found

    def _elementwise(self, operation: str) -> list[str]:
        out = self.output
        flat = all(x.size in (1, out.size) for x in self.inputs)
        if flat:
            reads = [f"{x.text}[{0 if x.size == 1 and out.size > 1 else 'i'}]" for x in self.inputs]
            made = self._expression(operation, reads)
            return [f"  for (int i = 0; i < {out.size}; i++) {out.text}[i] = {made};"]
        reads = [f"{x.text}[{self._broadcast_index(x)}]" for x in self.inputs]
        return self._nested(f"{out.text}[{_index(out)}] = {self._expression(operation, reads)};")

    def _broadcast_index(self, x: Operand) -> str:
        """Return the index of an operand whose axes of one entry are repeated."""
        lead = len(self.output.shape) - len(x.shape)
        parts = [
            f"i{axis + lead} * {stride}"
            for axis, (size, stride) in enumerate(zip(x.shape, x.strides, strict=True))
            if size > 1
        ]
        return " + ".join(parts) or "0"

    def _nested(self, statement: str) -> list[str]:
        """Return a statement inside loops over every axis of the output."""
        loops = [
            f"  {'  ' * axis}for (int i{axis} = 0; i{axis} < {size}; i{axis}++)"
            for axis, size in enumerate(self.output.shape)
        ]
        return [*loops, f"  {'  ' * len(loops)}{statement}"]

    def _expression(self, operation: str, reads: list[str]) -> str:
        kind = self.inputs[0].dtype
        f, one = ("f", "1.0f") if kind == "float32" else ("", "1.0")
        a, b = reads[0], reads[-1]
        if operation in FUNCTIONS:
            return f"{FUNCTIONS[operation]}{f}({', '.join(reads)})"
        if operation in SIGNS:
            return f"{a} {SIGNS[operation]} {b}"
        real = kind.startswith("float")
        return {
            **{"neg": f"-{a}", "not": f"!{a}", "where": f"{a} ? {reads[1 % len(reads)]} : {b}"},
            **{"logistic": f"{one} / ({one} + exp{f}(-{a}))", "rsqrt": f"{one} / sqrt{f}({a})"},
            "abs": f"fabs{f}({a})" if real else f"{a} < 0 ? -{a} : {a}",
            "sign": f"({C_TYPES[kind]})(({a} > 0) - ({a} < 0))",
            **{"max": f"{a} > {b} ? {a} : {b}", "min": f"{a} < {b} ? {a} : {b}"},
            "rem": f"fmod{f}({a}, {b})" if real else f"{a} % {b}",
            "cast": f"{a} != 0"
            if self.output.dtype == "bool"
            else f"({C_TYPES[self.output.dtype]}){a}",
        }[operation]

    def _reduce(self, operation: str) -> list[str]:
        """Return loops over the kept axes, with loops over the others inside."""
        x, out = self.inputs[0], self.output
        axes = self.how["axes"]
        kept = [axis for axis in range(len(x.shape)) if axis not in axes]
        start = STARTS.get(operation, f"{x.text}[{_sum(kept, x)}]")
        read = f"{x.text}[{_index(x)}]"
        step = {
            **{"sum": f"r += {read};", "prod": f"r *= {read};"},
            **{"any": f"r = r || {read};", "all": f"r = r && {read};"},
            **{
                "maximum": f"if ({read} > r) r = {read};",
                "minimum": f"if ({read} < r) r = {read};",
            },
        }[operation]
        place = " + ".join(
            f"i{axis} * {stride}" for axis, stride in zip(kept, out.strides, strict=True)
        )
        return [
            *(f"  {_loop(axis, x)}" for axis in kept),
            f"  {{ {C_TYPES[out.dtype]} r = {start};",
            *(f"    {_loop(axis, x)}" for axis in axes),
            f"      {step}",
            f"    {out.text}[{place or '0'}] = r; }}",
        ]

    def _arg(self, operation: str) -> list[str]:
        x, out, axis = self.inputs[0], self.output, self.how["axis"]
        kept = [each for each in range(len(x.shape)) if each != axis]
        sign = ">" if operation == "argmax" else "<"
        place = " + ".join(f"i{each} * {s}" for each, s in zip(kept, out.strides, strict=True))
        at_best = " + ".join(filter(None, [_sum(kept, x, ""), f"best * {x.strides[axis]}"]))
        best = f"{x.text}[{at_best}]"
        return [
            *(f"  {_loop(each, x)}" for each in kept),
            "  { int best = 0;",
            f"    {_loop(axis, x)}",
            f"      if ({x.text}[{_index(x)}] {sign} {best}) best = i{axis};",
            f"    {out.text}[{place or '0'}] = ({C_TYPES[out.dtype]})best; }}",
        ]

    def _matmul(self) -> list[str]:
        """Multiply matrices; the inner loop runs along rows of the second, so it vectorises."""
        (a, b), out = self.inputs, self.output
        (m, k), n = a.shape[-2:], b.shape[-1]
        count = math.prod(out.shape[:-2])
        left, right = (x.size // (x.shape[-2] * x.shape[-1]) for x in (a, b))
        x, w = (
            f"{each.text} + {'g' if many > 1 else '0'} * {each.shape[-2] * each.shape[-1]}"
            for each, many in ((a, left), (b, right))
        )
        kind = C_TYPES[out.dtype]
        return [
            f"  for (int g = 0; g < {count}; g++)",
            f"    for (int i = 0; i < {m}; i++) {{",
            f"      {kind} *restrict y = {out.text} + (g * {m} + i) * {n};",
            f"      const {kind} *restrict x = {x} + i * {k};",
            f"      const {kind} *restrict w = {w};",
            f"      for (int j = 0; j < {n}; j++) y[j] = 0;",
            f"      for (int k = 0; k < {k}; k++)",
            f"        for (int j = 0; j < {n}; j++) y[j] += x[k] * w[k * {n} + j];",
            "    }",
        ]

    def _conv(self) -> list[str]:
        (x, w), out = self.inputs, self.output
        (_, high, wide, inputs), (kh, kw, _, outputs) = x.shape, w.shape
        (sh, sw), ((top, _), (left, _)) = self.how["strides"], self.how["pads"]
        _, rows, columns, _ = out.shape
        kind = C_TYPES[out.dtype]
        return [
            f"  for (int r = 0; r < {rows}; r++) for (int c = 0; c < {columns}; c++) {{",
            f"    {kind} *y = {out.text} + (r * {columns} + c) * {outputs};",
            f"    for (int o = 0; o < {outputs}; o++) y[o] = 0;",
            f"    for (int p = 0; p < {kh}; p++) for (int q = 0; q < {kw}; q++) {{",
            f"      int v = r * {sh} + p - {top}, h = c * {sw} + q - {left};",
            f"      if (v < 0 || v >= {high} || h < 0 || h >= {wide}) continue;",
            f"      for (int i = 0; i < {inputs}; i++) for (int o = 0; o < {outputs}; o++)",
            f"        y[o] += {x.text}[(v * {wide} + h) * {inputs} + i]"
            f" * {w.text}[((p * {kw} + q) * {inputs} + i) * {outputs} + o];",
            "    }",
            "  }",
        ]

    def _broadcast(self) -> list[str]:
        self.inputs = self.inputs[:1]
        read = f"{self.inputs[0].text}[{self._broadcast_index(self.inputs[0])}]"
        return self._nested(f"{self.output.text}[{_index(self.output)}] = {read};")

    def _transpose(self) -> list[str]:
        x, axes = self.inputs[0], self.how["axes"]
        place = " + ".join(f"i{at} * {x.strides[axis]}" for at, axis in enumerate(axes))
        return self._nested(f"{self.output.text}[{_index(self.output)}] = {x.text}[{place}];")

    def _slice(self) -> list[str]:
        x, cut = self.inputs[0], self.how["axis"]
        parts = [
            f"({self.how['start']} + i{axis} * {self.how['step']}) * {stride}"
            if axis == cut
            else f"i{axis} * {stride}"
            for axis, stride in enumerate(x.strides)
        ]
        read = f"{x.text}[{' + '.join(parts)}]"
        return self._nested(f"{self.output.text}[{_index(self.output)}] = {read};")

    def _concat(self) -> list[str]:
        """Copy each part to its place along the axis."""
        out, axis, before, lines = self.output, self.how["axis"], 0, list[str]()
        for x in self.inputs:
            parts = [
                f"({before} + i{at}) * {stride}" if at == axis else f"i{at} * {stride}"
                for at, stride in enumerate(out.strides)
            ]
            lines += [f"  {_loop(at, x)}" for at in range(len(x.shape))]
            lines.append(f"    {out.text}[{' + '.join(parts)}] = {x.text}[{_index(x)}];")
            before += x.shape[axis]
        return lines

    def _take(self) -> list[str]:
        (x, index), axis = self.inputs, self.how["axis"]
        own = len(index.shape)
        at = " + ".join(f"i{axis + i} * {s}" for i, s in enumerate(index.strides)) or "0"
        places = [
            f"{index.text}[{at}] * {stride}"
            if each == axis
            else f"i{each if each < axis else each + own - 1} * {stride}"
            for each, stride in enumerate(x.strides)
        ]
        read = f"{x.text}[{' + '.join(places)}]"
        return self._nested(f"{self.output.text}[{_index(self.output)}] = {read};")


def _index(x: Operand) -> str:
    """Return the index of the entry that the loops i0, i1, ... stand at."""
    return _sum(range(len(x.shape)), x)


def _sum(axes: Any, x: Operand, nothing: str = "0") -> str:
    """Return the part of an index that some axes make."""
    return " + ".join(f"i{axis} * {x.strides[axis]}" for axis in axes) or nothing


def _loop(axis: int, x: Operand) -> str:
    return f"for (int i{axis} = 0; i{axis} < {x.shape[axis]}; i{axis}++)"
