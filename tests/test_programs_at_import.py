"""Importing a test module compiles no JAX program, and so runs none."""

import jax.numpy as jnp
from programs_at_import import ProgramsAtImport


def test_no_test_module_compiles_a_program_when_it_is_imported(programs_at_import):
    """Make arrays and keys there with constants.py, and all else in fixtures or functions."""
    assert programs_at_import.module is None
    assert programs_at_import.found == []


def test_a_module_that_compiles_a_program_is_named():
    noted = ProgramsAtImport()
    jnp.full((2, 1, 3, 1, 5), 7.0)
    noted.module = "tests/test_planted.py"
    jnp.full((2, 1, 3, 1, 6), 7.0)
    noted.module = None
    assert noted.found
    assert all(line.startswith("tests/test_planted.py: jit(") for line in noted.found)
