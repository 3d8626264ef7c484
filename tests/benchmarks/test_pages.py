"""The pages of algorithms are what their files and their committed scores say."""

import importlib.util
from pathlib import Path

import pytest

from sterling.algorithms import ALGORITHMS

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_page_is_up_to_date(name):
    written = (DOCS / "algorithms" / f"{name}.md").read_text()
    assert written == generate.page(name), "run `make docs`"
