"""What a notebook shows of a run and of a film."""

import base64
import re

import pytest

import sterling
from sterling.report.live import notebook_html


def train(**options):
    small = {"envs": 4, "length": 8, "minibatch": 16, "epochs": 1, "width": 8, "preset": False}
    how = {"steps": 256, "evaluate_episodes": 2, **small, **options}
    return sterling.train("ppo", "CartPole-v1", **how)


def test_notebook_html_of_a_run_has_summary_curve_and_film(tmp_path):
    run = train(out=tmp_path / "a<b")
    shown = run._repr_html_()
    assert "final return" in shown
    assert "a&lt;b" in shown
    assert "<video" not in shown
    (picture,) = re.findall(r"data:image/png;base64,([^']+)'", shown)
    assert base64.b64decode(picture) == (run.path / "curve.png").read_bytes()

    film = run.film(steps=5)
    assert film.path == run.path / "play.mp4"
    (inside,) = re.findall(r"data:video/mp4;base64,([^']+)'", film._repr_html_())
    assert base64.b64decode(inside) == film.path.read_bytes()
    assert film._repr_html_() in run._repr_html_()


def test_notebook_html_of_a_run_without_folder_has_its_summary():
    run = train()
    assert "final return" in run._repr_html_()
    with pytest.raises(sterling.Mistake, match="no folder"):
        run.film()


def test_notebook_html_names_a_large_film_without_embedding_it(tmp_path, monkeypatch):
    monkeypatch.setattr(notebook_html, "INLINE_BYTES", 10)
    (tmp_path / "long.mp4").write_bytes(b"x" * 11)
    shown = notebook_html.video_tag(tmp_path / "long.mp4")
    assert "base64" not in shown
    assert "long.mp4" in shown
