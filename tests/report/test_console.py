"""A reader that leaves ends nothing with an error."""

import os

import pytest
from rich.table import Table

from sterling.report.live.console import PlainConsole


def test_console_raises_broken_pipe_when_its_reader_is_closed():
    reader, writer = os.pipe()
    os.close(reader)
    table = Table("one", "two")
    with pytest.raises(BrokenPipeError), os.fdopen(writer, "w") as file:
        PlainConsole(file=file).print(table)


def test_console_does_not_wrap_lines_in_a_file(tmp_path, monkeypatch):
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


def test_console_writes_no_trailing_spaces_to_a_file(tmp_path):
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
