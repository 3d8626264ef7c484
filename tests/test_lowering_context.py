"""What is lowered into one context."""

import threading

import jax
import jax.numpy as jnp
import lowering_context
import numpy as np
import pytest
from jax._src.interpreters import mlir


def test_programs_of_a_thread_share_a_context_until_it_has_many():
    context = lowering_context.shared(object)
    contexts = [context() for _ in range(lowering_context.MOST_PROGRAMS + 1)]
    assert len(set(map(id, contexts[:-1]))) == 1
    assert contexts[-1] is not contexts[0]


def test_threads_share_no_context():
    context = lowering_context.shared(object)
    others = []
    thread = threading.Thread(target=lambda: others.append(context()))
    thread.start()
    thread.join()
    assert others[0] is not context()


def test_program_that_is_lowered_within_another_has_a_context_of_its_own():
    outer = mlir.make_ir_context()
    with outer:
        assert mlir.make_ir_context() is not outer
        inner = jax.jit(lambda x: jnp.sum(x) + 2.0)
        module = mlir.ir.Module.create(loc=mlir.ir.Location.unknown(outer))
        with mlir.ir.InsertionPoint(module.body), mlir.ir.Location.unknown(outer):
            assert inner(jnp.ones(7)) == 9.0


@pytest.mark.parametrize("size", [3, 5])
def test_programs_in_one_context_compute_the_same(size):
    assert len({id(mlir.make_ir_context()) for _ in range(3)}) < 3
    numbers = np.linspace(-1.0, 1.0, size, dtype=np.float32)
    program = jax.jit(lambda x: jnp.sum(jnp.tanh(x) * numbers))  # numbers are a constant of it
    np.testing.assert_allclose(program(numbers), np.sum(np.tanh(numbers) * numbers), rtol=1e-6)
