"""The documentation site: every page has a place in it, and every file that a page links to."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "site"))
import build_site  # noqa: E402
import docstring_markdown  # noqa: E402


def test_every_page_stands_in_the_navigation():
    listed = set(re.findall(r": (\S+\.md)$", build_site.configuration(), re.MULTILINE))
    pages = {str(page.relative_to(ROOT)) for page in build_site.pages()} - {build_site.START}
    assert pages - listed == set()
    assert listed - {"index.md", "benchmarks/results/speed.md"} <= pages


def test_every_link_leads_to_a_staged_file(tmp_path):
    build_site.stage(tmp_path)
    broken = [
        f"{page.relative_to(tmp_path)}: {target}"
        for page in tmp_path.rglob("*.md")
        for _, target, _, _ in build_site.LINK.findall(build_site.without_code(page.read_text()))
        if not target.startswith(build_site.NOT_LOCAL) and not (page.parent / target).exists()
    ]
    assert broken == []
    assert (tmp_path / "index.md").read_text().startswith("# Sterling")


def test_links_that_name_a_page_file_read_as_the_page_title(tmp_path):
    build_site.stage(tmp_path)
    named = [
        f"{page.relative_to(tmp_path)}: {link}"
        for page in tmp_path.rglob("*.md")
        for link in re.findall(r"\[`?[\w./-]+\.md`?\]\([^)]*\)", page.read_text())
    ]
    assert named == []
    offline = (tmp_path / "docs" / "offline.md").read_text()
    assert f"[{docstring_markdown.page_title(ROOT / 'docs/data.md')}](data.md)" in offline
    assert "`--sampling uniform | episodes | return`" in offline  # GitHub's needs backslashes


def test_algorithm_pages_have_prose_outside_of_boxes_and_equations_that_fit_them():
    for page in (ROOT / "docs" / "algorithms").glob("*.md"):
        for box in re.findall(r"```text\n(.*?)\n```", page.read_text(), re.DOTALL):
            assert max(map(len, box.splitlines())) <= 96, page.name
            assert not re.search(r"^(Evidence|Deviations)\b", box, re.MULTILINE), page.name


def test_docstring_becomes_prose_code_links_and_boxes_of_equations():
    text = """\
    loss   L = E[ a* ]

    and    M = 2
g is ``gamma`` in [0, 1]; the *rate* of a* is <x>; docs/scores.md.
Deviations: :mod:`sterling.types`. Evidence: docs/none.md."""
    title = docstring_markdown.page_title(ROOT / "docs" / "scores.md")
    assert docstring_markdown.docstring_markdown(text).split("\n\n") == [
        "```text\nloss   L = E[ a* ]",
        "and    M = 2\n```",
        rf"g is `gamma` in \[0, 1\]; the *rate* of a\* is \<x>; [{title}](../scores.md).",
        "Deviations: `sterling.types`.",
        "Evidence: docs/none.md.",
    ]
