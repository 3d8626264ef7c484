"""The notebook of docs/platforms.md works as it stands."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "platforms.md").read_text()


@pytest.mark.slow
def test_platforms_page_notebook_shows_a_run_and_a_film(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    exec(compile(code, "platforms.md", "exec"), found)
    assert (tmp_path / "runs/notebook/play.mp4").stat().st_size > 0
    assert "<video" in found["run"]._repr_html_()
