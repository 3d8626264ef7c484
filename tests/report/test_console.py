"""A reader that leaves ends nothing with an error."""

import os

import pytest
from rich.table import Table

from sterling.report.live.console import PlainConsole


def test_a_reader_that_leaves_is_a_broken_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    table = Table("one", "two")
    with pytest.raises(BrokenPipeError), os.fdopen(writer, "w") as file:
        PlainConsole(file=file).print(table)


def test_a_file_is_not_folded(tmp_path, monkeypatch):
    table, name = Table("what", "how much"), "a name with many words " * 10
    table.add_row(name, "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    for columns, folded in ((None, False), ("80", True)):
        if columns:
            monkeypatch.setenv("COLUMNS", columns)
        with (tmp_path / "out").open("w+") as file:
            PlainConsole(file=file).print(table)
            file.seek(0)
            lines = file.read().splitlines()
        assert any(name.strip() in line for line in lines) != folded


def test_lines_of_a_file_end_with_their_text(tmp_path):
    table = Table.grid(padding=(0, 2))
    table.add_row("name", "a")
    table.add_row("other", "a longer text")
    with (tmp_path / "out").open("w+") as file:
        console = PlainConsole(file=file)
        console.print(table)
        console.print("kept ", end="")
        console.print("together")
        file.seek(0)
        assert file.read() == "name   a\nother  a longer text\nkept together\n"
