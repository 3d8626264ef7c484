"""The small bugs that are planted: each operator changes one node of a syntax tree.

General mutation tools change signs and constants. They do not know masks, stop_gradient, target
networks, random keys or normalisers, where the bugs of reinforcement learning are; these do.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from typing import Any

MASK = re.compile(r"(^|_)(mask|valid|legal|follows|masked)($|_)")
NORMALISER = re.compile(r"normalis|statistics")
FOLDS = ("fold", "fold_each", "at", "deal")
REDUCTIONS = {"sum": "mean", "mean": "sum", "max": "min", "min": "max", "argmax": "argmin"}
REDUCTIONS |= {"argmin": "argmax", "any": "all", "all": "any"}
PAIRS = {"minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor"}
ERASED = ("exp", "log", "sqrt", "square", "abs", "cumsum", "cumprod", "tanh", "reversed", "sorted")
PLACES = {"path", "folder", "root", "out", "place"}
UNORDERED = {"isinstance", "where", "zip", "getattr", "hasattr", "setattr", "range", "issubclass"}
SIGN = {ast.Add: ast.Sub, ast.Sub: ast.Add}
FACTOR = {ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult}
EDGE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
OPPOSITE = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
OPPOSITE |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Lt: ast.GtE, ast.Gt: ast.LtE}
OPPOSITE |= {ast.LtE: ast.Gt, ast.GtE: ast.Lt}

Change = tuple[str, ast.AST]


class Surroundings:
    """What an operator must know of the function and the module around a node.

    ``arrays`` is the array library's name there; ``online`` maps the names of target networks to
    the names of the networks that they follow; ``labels`` are the purposes of the random keys that
    the function derives.
    """

    def __init__(self, module: ast.Module, function: ast.AST):
        read = {n.id for n in ast.walk(module) if isinstance(n, ast.Name)}
        self.arrays = "jnp" if "jnp" in read else "np"
        self.online = _online(module) | _online_arguments(function)
        folds: list[Any] = [node for node in ast.walk(function) if _is_fold(node)]
        self.labels = [fold.args[1].value for fold in folds]


def changes(node: ast.AST, around: Surroundings) -> Iterator[Change]:
    """Yield every (operator, changed node) for one node."""
    for operator in EXPRESSIONS if isinstance(node, ast.expr) else STATEMENTS:
        yield from operator(node, around)


def _online(module: ast.Module) -> dict[str, str]:
    """Return {"target": field} where a class State has another field of the target's type."""
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == "State":
            fields = {
                f.target.id: ast.dump(f.annotation)
                for f in node.body
                if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)
            }
            alike = [f for f in fields if f != "target" and fields[f] == fields.get("target")]
            return {"target": alike[0]} if alike else {}
    return {}


def _online_arguments(function: ast.AST) -> dict[str, str]:
    arguments = getattr(function, "args", None)
    if not isinstance(arguments, ast.arguments):
        return {}
    types = {a.arg: ast.dump(a.annotation) for a in arguments.args if a.annotation}
    found = {}
    for name in [a for a in types if a.startswith("target")]:
        alike = [a for a in types if a != name and types[a] == types[name]]
        found |= {name: alike[0]} if alike else {}
    return found


def _called(node: ast.AST) -> str:
    """Return the last name of the function that a call calls, or nothing."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_fold(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and _called(node) in FOLDS
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
    )


def _last_name(node: ast.AST) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def _with(node: ast.AST, **fields: Any) -> Any:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _sign(node: ast.AST, _: Surroundings) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in SIGN and not _is_text(node):
        yield "sign", _with(node, op=SIGN[type(node.op)]())
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    if negative and not isinstance(node.operand, ast.Constant):
        yield "sign", node.operand


def _is_text(node: ast.AST) -> bool:
    """Whether a sum has a text or a row of a program's literals in it."""
    literal = (ast.JoinedStr, ast.Tuple, ast.List)
    return any(
        isinstance(n, literal) or isinstance(getattr(n, "value", None), (str, bytes))
        for n in ast.walk(node)
    )


def _factor(node: ast.AST, _: Surroundings) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in FACTOR and not _is_path(node):
        yield "factor", _with(node, op=FACTOR[type(node.op)]())
        yield "factor dropped", node.left
    if isinstance(node, ast.Constant) and type(node.value) is float:
        yield "constant", ast.Constant(2.0 * node.value if node.value else 1.0)


def _is_path(node: ast.BinOp) -> bool:
    """Whether ``/`` joins parts of a path."""
    texts = (ast.JoinedStr, ast.Constant)
    text = isinstance(node.right, texts) and not isinstance(getattr(node.right, "value", ""), float)
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    whole = isinstance(getattr(node.right, "value", None), int)
    return isinstance(node.op, ast.Div) and not whole and (text or bool(names & PLACES))


def _off_by_one(node: ast.AST, _: Surroundings) -> Iterator[Change]:
    if isinstance(node, (ast.BinOp, ast.Compare)):
        for name in ("left", "right"):
            side = getattr(node, name, None)
            if isinstance(side, ast.Constant) and type(side.value) is int:
                yield "off by one", _with(node, **{name: ast.Constant(side.value + 1)})
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        right = node.comparators[0]
        if isinstance(right, ast.Constant) and type(right.value) is int:
            yield "off by one", _with(node, comparators=[ast.Constant(right.value + 1)])
    if isinstance(node, ast.Subscript):
        yield from _index(node)


def _index(node: ast.Subscript) -> Iterator[Change]:
    place = node.slice
    if isinstance(place, ast.Constant) and type(place.value) is int:
        yield "off by one", _with(node, slice=ast.Constant(place.value + 1))
    if isinstance(place, ast.Slice):
        for name in ("lower", "upper"):
            bound = getattr(place, name)
            if bound is not None:
                more = ast.BinOp(bound, ast.Add(), ast.Constant(1))
                yield "off by one", _with(node, slice=_with(place, **{name: more}))


def _comparison(node: ast.AST, _: Surroundings) -> Iterator[Change]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        kind = type(node.ops[0])
        if kind in EDGE:
            yield "edge of a comparison", _with(node, ops=[EDGE[kind]()])
        if kind in OPPOSITE:
            yield "comparison turned round", _with(node, ops=[OPPOSITE[kind]()])
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and, or", _with(node, op=other)
        yield "and, or", _with(node, values=node.values[1:]) if node.values[2:] else node.values[1]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        yield "not dropped", node.operand
    if isinstance(node, ast.IfExp):
        yield "choice turned round", _with(node, body=node.orelse, orelse=node.body)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield "switch", ast.Constant(not node.value)


def _mask(node: ast.AST, around: Surroundings) -> Iterator[Change]:
    bits = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr))
    if bits and not ast.unparse(node).startswith("os."):
        operator = "mask dropped" if _is_mask(node) else "union dropped"
        yield operator, node.left
        yield operator, node.right
    if isinstance(node, ast.Call) and _called(node) == "where" and len(node.args) == 3:
        yield "mask dropped", node.args[1]
        condition, yes, no = node.args
        yield "choice turned round", _with(node, args=[condition, no, yes])
    if isinstance(node, ast.Call) and _called(node) != "where":
        for place, given in enumerate(node.args):
            if isinstance(given, (ast.Name, ast.Attribute)) and MASK.search(_last_name(given)):
                ones = ast.Call(_attribute(around, "ones_like"), [given], [])
                args = [*node.args[:place], ones, *node.args[place + 1 :]]
                yield "mask dropped", _with(node, args=args)


def _is_mask(node: ast.AST) -> bool:
    """Whether ``&`` or ``|`` joins conditions, not sets or settings."""
    whole = (ast.Dict, ast.DictComp, ast.Set, ast.Call)
    return not any(isinstance(side, whole) for side in (node.left, node.right))  # type: ignore[attr-defined]


def _attribute(around: Surroundings, name: str) -> ast.Attribute:
    return ast.Attribute(ast.Name(around.arrays, ast.Load()), name, ast.Load())


def _clip(node: ast.AST, around: Surroundings) -> Iterator[Change]:
    name = _called(node)
    if name == "clip" and len(node.args) == 3:  # type: ignore[attr-defined]
        x, low, high = node.args  # type: ignore[attr-defined]
        yield "clip side", ast.Call(_attribute(around, "maximum"), [x, low], [])
        yield "clip side", ast.Call(_attribute(around, "minimum"), [x, high], [])
    if isinstance(node, ast.Call) and name in (PAIRS | REDUCTIONS):
        operator = "clip side" if name in PAIRS else "reduction"
        other = (PAIRS | REDUCTIONS)[name]
        if isinstance(node.func, ast.Attribute):
            yield operator, _with(node, func=_with(node.func, attr=other))
        elif name in ("max", "min", "any", "all"):
            yield operator, _with(node, func=ast.Name(other, ast.Load()))
    if isinstance(node, ast.Call) and name in ERASED and node.args:
        yield "function dropped", node.args[0]


def _learning(node: ast.AST, around: Surroundings) -> Iterator[Change]:
    """What only learners have: stop_gradient, targets, keys, normalisers."""
    if isinstance(node, ast.Call) and _called(node) == "stop_gradient":
        yield "stop_gradient removed", node.args[0]
    name = _last_name(node)
    if isinstance(getattr(node, "ctx", None), ast.Load) and name in around.online:
        kind = "attr" if isinstance(node, ast.Attribute) else "id"
        state = isinstance(getattr(node, "value", None), ast.Name)
        if kind == "id" or (state and node.value.id == "state"):  # type: ignore[attr-defined]
            yield "online for target", _with(node, **{kind: around.online[name]})
    if _is_fold(node):
        yield from _keys(node, around)
    if isinstance(node, ast.Call) and node.args and NORMALISER.search(_last_name(node.func)):
        yield "normaliser detached", node.args[0]
    if _called(node) in ("update", "scale"):
        function: Any = node.func  # type: ignore[attr-defined]
        if NORMALISER.search(_last_name(getattr(function, "value", node))):
            same = function.value if function.attr == "update" else node.args[0]  # type: ignore[attr-defined]
            yield "normaliser detached", same


def _keys(node: Any, around: Surroundings) -> Iterator[Change]:
    mine = node.args[1].value
    others = [label for label in around.labels if label != mine]
    if others:
        args = [node.args[0], ast.Constant(others[0]), *node.args[2:]]
        yield "key reused", _with(node, args=args)
    if node.args[2:]:
        yield "key reused", _with(node, args=node.args[:2])


def _swapped(node: ast.AST, _: Surroundings) -> Iterator[Change]:
    """The first two arguments of a call exchanged, where both are plain values."""
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return
    first, second = node.args[:2]
    plain = (ast.Name, ast.Attribute, ast.Subscript)
    library = ast.unparse(node.func).split(".")[0] in ("np", "jnp", "jax")
    if library or _called(node) in PAIRS or _called(node) in UNORDERED:
        return
    if isinstance(first, plain) and isinstance(second, plain):
        yield "arguments swapped", _with(node, args=[second, first, *node.args[2:]])


def _statement(node: ast.AST, _: Surroundings) -> Iterator[Change]:
    if isinstance(node, ast.If):
        if len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse:
            yield "check dropped", ast.Pass()
        else:
            yield "condition negated", _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.AugAssign):
        yield "step dropped", ast.Pass()
        if type(node.op) in SIGN:
            yield "sign", _with(node, op=SIGN[type(node.op)]())
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "step dropped", ast.Pass()
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        made = _last_name(node.targets[0])
        read = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        if made and isinstance(node.targets[0], ast.Name) and made in read:
            yield "step dropped", ast.Pass()


EXPRESSIONS = (_sign, _factor, _off_by_one, _comparison, _mask, _clip, _learning, _swapped)
STATEMENTS = (_statement,)
