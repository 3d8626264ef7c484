"""Fields are read from source text, whatever characters and lines it has."""

from sterling.commands.options.class_source import class_fields, find_class

SOURCE = """\
class Config:
    ö: str = "ä,ö"  # umlauts before and in the default
    lr: float = 3e-4  # a form feed \f begins no line
    sizes: tuple[int, ...] = (
        64,  # "ü" is two bytes
        32,
    )  # on several lines
"""


def test_defaults_are_read_as_they_are_written(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(SOURCE, encoding="utf-8")
    fields = class_fields(find_class(file, "Config"))
    written = '(\n        64,  # "ü" is two bytes\n        32,\n    )'
    assert [each.default for each in fields.values()] == ['"ä,ö"', "3e-4", written]
    assert fields["sizes"].comment == "on several lines"
