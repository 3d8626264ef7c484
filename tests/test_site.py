"""The documentation site: every page has a place in it, and every file that a page links to."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "site"))
import build_site  # noqa: E402


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
