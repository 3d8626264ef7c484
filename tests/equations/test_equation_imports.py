"""The modules of ``tests/equations``, and those that are collected with them, are imported without
compiling a JAX program (see tests/programs_at_import.py)."""


def test_no_test_module_compiles_a_program_when_it_is_imported(programs_at_import):
    """Make arrays and keys there with constants.py, and all else in fixtures or functions."""
    assert programs_at_import.found == []
