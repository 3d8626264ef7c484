"""A reader that leaves ends nothing with an error."""

import os

import pytest
from rich.table import Table

from sterling.report.console import Output


def test_a_reader_that_leaves_is_a_broken_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    table = Table("one", "two")
    with pytest.raises(BrokenPipeError), os.fdopen(writer, "w") as file:
        Output(file=file).print(table)
