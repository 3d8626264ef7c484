"""What README and docs name is there: links, paths, commands with their options, make targets."""

import re
import shlex
from pathlib import Path

import pytest
from every_case import every

from sterling.cli_options import parse_command_line
from sterling.commands import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *(ROOT / "benchmarks").glob("*/README.md"),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "migrate").glob("*.md")),
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *sorted((ROOT / "benchmarks").glob("**/results/*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FOLDERS = "sterling|benchmarks|docs|tests|examples"
PATH = re.compile(rf"(?<![\w./-])((?:{FOLDERS})/[\w./*{{}},-]*[\w/*}}])")
MODULE = re.compile(r"`([a-z_]+/[a-z_]+\.py)`")  # a file of sterling/, said without it
PLACES = ("", "sterling", "tests", "benchmarks")
PYTHON = re.compile(r"python3? (-m )?((?:benchmarks|docs|examples|tests)[\w./-]*)")
TARGET = re.compile(r"`make ([a-z-]+)`|^ {4}make ([a-z -]+?)(?: +#.*)?$", re.MULTILINE)


def name_of(page):
    return str(page.relative_to(ROOT))


def braces(path):
    """``a.{json,md}`` as both paths."""
    found = re.search(r"\{([^{}]*)\}", path)
    if not found:
        return [path]
    return [
        each
        for word in found.group(1).split(",")
        for each in braces(path[: found.start()] + word + path[found.end() :])
    ]


def there(folder, path):
    return bool(list(folder.glob(path))) if "*" in path else (folder / path).exists()


def in_blocks(text):
    """Every command of a block of code, fenced or indented, with continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", text)
    fenced = "\n".join(re.findall(r"```.*?```", joined, re.DOTALL))
    indented = re.findall(r"^ {4}.*$", joined, re.MULTILINE)
    for line in [*fenced.splitlines(), *indented]:
        words = line.strip().removeprefix("$ ")
        if re.match(r"sterling [a-z]", words):
            yield words


def in_text(text):
    """Every command in running text, which may leave out what the command must have."""
    for words in re.findall(r"(?<!`)`(sterling [^`]+)`", text):
        yield " ".join(words.split())


@every("page", PAGES, name_of)
def test_documentation_links_lead_to_existing_files(page):
    links = {link.partition("#")[0] for link in LINK.findall(page.read_text())}
    dead = {link for link in links if link and ":" not in link and not there(page.parent, link)}
    assert not dead


@every("page", PAGES, name_of)
def test_documentation_names_existing_paths(page):
    text = LINK.sub("", page.read_text())
    named = {each for path in PATH.findall(text) for each in braces(path)}
    missing = {path for path in named if not there(ROOT, path)}
    named = set(MODULE.findall(text))
    missing |= {
        path for path in named if not any((ROOT / place / path).exists() for place in PLACES)
    }
    assert not missing


@every("page", PAGES, name_of)
def test_documentation_names_existing_scripts(page):
    for module, path in PYTHON.findall(page.read_text()):
        file = path.replace(".", "/") + ".py" if module else path
        assert (ROOT / file).exists(), path


@every("page", PAGES, name_of)
def test_documentation_names_existing_make_targets(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for pair in TARGET.findall(page.read_text()) for word in "".join(pair).split()}
    assert named <= targets


def found(how):
    named = {}
    for page in PAGES:
        for words in how(page.read_text()):
            named.setdefault(words, str(page.relative_to(ROOT)))
    return named


BLOCKS, TEXT = found(in_blocks), found(in_text)
TEXT |= {line.translate({91: None, 93: None}): BLOCKS[line] for line in BLOCKS if "[--" in line}


def words_of(line):
    said = shlex.split(line, comments=True)[1:]
    return said[: next((i for i, word in enumerate(said) if word in {"|", ">", "&&", ";"}), None)]


@every("line", [line for line in BLOCKS if "[--" not in line])
def test_documentation_code_block_commands_parse(line):
    try:
        parse_command_line(words_of(line))
    except SystemExit as left:  # help and version leave as well, with code 0
        if left.code:
            pytest.fail(f"{BLOCKS[line]}: {line}")


@every("line", TEXT)
def test_documentation_inline_commands_name_existing_options(line, capsys):
    said = words_of(line)
    assert said[0].rstrip(":") in COMMANDS or said[0].startswith("-"), TEXT[line]
    try:
        parse_command_line(said)
    except SystemExit:
        told = capsys.readouterr().err
        for wrong in ("is not known", "Unknown option", "invalid choice"):
            assert wrong not in told, f"{TEXT[line]}: {line}"


def test_documentation_check_refuses_unknown_commands_and_options():
    with pytest.raises(SystemExit):
        parse_command_line(["trian", "ppo"])
    with pytest.raises(SystemExit):
        parse_command_line(["evaluate", "runs/cheetah", "--episods", "20"])
