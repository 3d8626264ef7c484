"""Join the names on the path to a part of an observation or action, whatever the names contain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import jax
from jaxtyping import PyTree


def joined_path(path: Iterable[Any]) -> str:
    """Return the names on a path joined by /. A name may contain /, so ~1 stands for / and ~0 for
    ~ in names (RFC 6901): no two paths have the same text."""
    return "/".join(str(word).replace("~", "~0").replace("/", "~1") for word in path)


def plain_path(path: str) -> str:
    """Return a joined path, or one of its names, with every name as it is."""
    return path.replace("~1", "/").replace("~0", "~")


def path_words(path: Iterable[Any]) -> list[str]:
    """Return the names on a path of JAX's, which may contain /."""
    return [jax.tree_util.keystr((key,), simple=True) for key in path]


def named_leaves(
    tree: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> list[tuple[str, Any]]:
    """Return the leaves with their paths as text, and no text twice: names are joined by / as they
    are, but where two paths would be one, a slash inside a name is written ~1. ``is_leaf``: which
    nodes count as leaves besides."""
    found = jax.tree_util.tree_leaves_with_path(tree, is_leaf)
    words = [path_words(path) for path, _ in found]
    plain = ["/".join(each) for each in words]
    counts = Counter(plain)
    names = [
        joined_path(each) if counts[name] > 1 else name
        for each, name in zip(words, plain, strict=True)
    ]
    return [(name, leaf) for name, (_, leaf) in zip(names, found, strict=True)]


def map_named(change: Callable[[str, Any], Any], tree: PyTree) -> PyTree:
    """Return the tree with every leaf replaced by ``change(path, leaf)``, its path as in
    :func:`named_leaves`."""
    made = [change(path, leaf) for path, leaf in named_leaves(tree)]
    return jax.tree.unflatten(jax.tree.structure(tree), made)
