"""Every field of a Config changes what an algorithm does, or is refused where it does not.

The programs are those of the compared updates, as JAX traces them. A float field is read if an
output depends on it; any other field, if another value gives another program or other needs.
"""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import language_updates
import pytest
import updates
from jax.interpreters import partial_eval

from sterling.training.fields.unread_fields import missing_effect
from sterling.types import Feed, Mistake

pytestmark = pytest.mark.slow

ADDRESS = re.compile("0x[0-9a-f]+")  # of functions in the text of a program

WORDS = ("relu", "token", "sequence", "team", "tanh", "none", "mean", "k3", "sum", "whiten", "own",
         "lstm", "reward", "loss", "max", "min", "ipo", "dpo", "chi_square", "kl")  # fmt: skip
READ_ELSEWHERE = {  # fields that are read by what is not traced here
    "scale_reward": ("iql", "xql", "fdvl"),  # the source
    "divergence": ("fdvl",),
    **dict.fromkeys(("cost", "cost_limit", "multiplier_lr"), ("ppo-lagrangian", "sac-lagrangian")),
    **dict.fromkeys(("shift", "subpixel"), ("spr", "bbf", "curl", "drq-v2")),  # pictures
    **dict.fromkeys(("noise", "activation", "full_weights"), ("openes", "cma-es", "cem-rl")),
    **dict.fromkeys(("exploration", "spread"), ("r2d2",)),  # acting with a memory
    "resets": ("bro",),
    "value_current": ("crl",),  # goals of the log
    "limit": ("sft", "dpo"),  # answers in evaluations
}


def algorithm_names():
    """The names of all algorithms with compared updates."""
    labels = [each.label for each in updates.UPDATES] + list(language_updates.UPDATES)
    return sorted({label.split()[0] for label in labels})


def traced_updates(name):
    """Tuples of module, Config, learner, batch, and the function from a Config to a state."""
    for each in updates.UPDATES:
        if each.name == name and "masked" not in each.label:

            def begin(config, each=each):
                return each.module.init(jax.random.key(0), each.spec, config)

            yield each.module, each.config, Feed(name=each.feed).learner, each.batch(), begin
    for label in language_updates.UPDATES:
        if label.split()[0] == name:
            module, config = language_updates.config_of(label)
            model = language_updates._model()  # made here, because traced functions close over it

            def begin(config, module=module, model=model):
                return module.begin(model, config)

            yield module, config, "learn", language_updates.make_batch(50.0), begin


def read_numbers(function, *arguments):
    """The names of the inputs on which an output depends that is not itself a field, and the
    program that computes these outputs."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    given, made = (
        [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
        for tree in (arguments, shapes)
    )
    program, used = partial_eval.dce_jaxpr(closed.jaxpr, [".config." not in x for x in made])
    names = {x.rpartition(".")[2] for x, read in zip(given, used, strict=True) if read}
    constants = [float(jnp.sum(jnp.asarray(x, jnp.float32))) for x in closed.consts
                 if jnp.issubdtype(x.dtype, jnp.number)]  # fmt: skip
    return names, (ADDRESS.sub("", str(program)), constants, given)


def fields_read_by_acting(module, state, batch):
    """The same of ``act``; nothing where it needs more than observations."""

    def act(state, obs):
        return module.act(state, obs, jax.random.key(1), True)[0]

    for form in (lambda x: x[0], lambda x: x, lambda x: x[:1]):
        try:
            return read_numbers(act, state, jax.tree.map(form, batch.obs))
        except Exception:
            continue
    return set(), None


def other_values(field, value):
    """Values of another program, if the field shapes it."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, tuple)):
        return [2, 3] if value != 2 else [3, 1]
    if value is None:
        return [0.5] if "float" in str(field.type) else [2]
    return WORDS if isinstance(value, str) else [0.7 * value + 0.05]


def is_read(field, config, module, programs):
    """Whether another value of a field gives other needs or another program; None if it is refused
    by the algorithm itself."""
    for value in other_values(field, getattr(config, field.name)):
        if value == getattr(config, field.name):
            continue
        changed = dataclasses.replace(config, **{field.name: value})
        try:
            if repr(module.needs(changed)) != repr(module.needs(config)):
                return True
            if any(one(changed) != one(config) for one in programs[: 1 + (field.type != "float")]):
                return True
        except Mistake:
            if not isinstance(value, str):
                return None  # a line says what is wrong
        except Exception:
            return True  # the batch does not have the new form
    return False


def read_fields(module, config, learner, batch, begin):
    """The names of the fields that one update, acting, the first state or the needs depend on."""

    def learn(state):
        return getattr(module, learner)(state, batch, jax.random.key(1))

    @functools.cache
    def first_state(config):
        return read_numbers(lambda: begin(config))[1]

    @functools.cache
    def updates_and_actions(config):
        state = jax.eval_shape(lambda: begin(config))
        return read_numbers(learn, state)[1], fields_read_by_acting(module, state, batch)[1]

    state = jax.eval_shape(lambda: begin(config))
    found = read_numbers(learn, state)[0] | fields_read_by_acting(module, state, batch)[0]
    programs = (first_state, updates_and_actions)
    fields = [x for x in dataclasses.fields(config) if x.name not in found]
    answers = {x.name: is_read(x, config, module, programs) for x in fields}
    return found | {x for x, read in answers.items() if read}, {
        x for x, read in answers.items() if read is None
    }


@pytest.mark.parametrize("name", algorithm_names())
def test_every_field_changes_the_program_or_is_refused(name):
    read, refused, fields = set(), set(), set()
    for module, config, *parts in traced_updates(name):
        own, lines = read_fields(module, config, *parts)
        names = [field.name for field in dataclasses.fields(config)]
        idle = {x for x in names if missing_effect(module, config, x, object())}
        assert idle & own <= ({"target_entropy"} if name == "bro" else set())  # its rate is 0
        read, refused, fields = read | own, refused | idle | lines, fields | set(names)
    known = {field for field, owners in READ_ELSEWHERE.items() if name in owners}
    assert fields - read - refused <= known
