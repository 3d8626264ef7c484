"""Values of a JSON tree put in, taken out and nested, and what reading them may come to."""

import copy

from hypothesis import HealthCheck, settings
from hypothesis import strategies as some

from sterling.types import Mistake

leaf = some.one_of(
    *(some.none(), some.booleans(), some.integers(), some.integers(-(10**40), 10**40)),
    *(some.floats(), some.text(max_size=5), some.just("\x00"), some.just("x" * 300)),
)
value = some.recursive(
    leaf,
    lambda inner: some.one_of(
        some.lists(inner, max_size=3), some.dictionaries(some.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
fuzzed = settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def one_line(read):
    """Whether reading gives a result, or one line."""
    said = None
    try:
        read()
    except Mistake as error:
        said = str(error)
    assert "\n" not in (said or "")
    return said


def places(content, above=()):
    """The path to every value of a tree."""
    yield above
    children = content.items() if isinstance(content, dict) else ()
    if isinstance(content, list):
        children = list(enumerate(content))[:3]
    for key, inner in children:
        yield from places(inner, (*above, key))


def put(content, place, new):
    """The tree with another value at a place."""
    if not place:
        return new
    changed = copy.deepcopy(content)
    at = changed
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = new
    return changed
