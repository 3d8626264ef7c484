"""What docs/configuration.md shows works as it stands."""

import re
import shlex
from pathlib import Path

import pytest

from sterling.cli import main
from sterling.cli_options import parse_command_line
from sterling.training.config.config_file import read_config_file

PAGE = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text()
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]


@pytest.mark.slow
def test_configuration_page_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict = {}
    exec(compile(code, "configuration.md", "exec"), found)
    assert found["run"].settings.env_options == {"max_episode_steps": 100}
    assert found["again"].settings.config.lr == 1e-4
    assert found["again"].settings.config.length == 64
    out = capsys.readouterr().out
    assert "Evaluation: return of ppo in CartPole-v1" in out
    assert "not compared" in out
    assert "Report: report/index.html" in out


def test_configuration_page_yaml_file_is_read(tmp_path, capsys):
    (tmp_path / "run.yaml").write_text(YAML)
    found = read_config_file(tmp_path / "run.yaml")
    assert (found["lr"], found["length"], found["steps"]) == (3e-4, 32, 20_000)
    words = ["train", "--config", str(tmp_path / "run.yaml"), "--steps", "64"]
    assert main([*words, "--out", str(tmp_path / "a")]) == 2  # every key is known
    assert "--steps 64 is below one iteration of ppo" in capsys.readouterr().err


def test_configuration_page_commands_parse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(YAML)
    (tmp_path / "study.yaml").write_text("algorithm: ppo\nenvironment: CartPole-v1\n")
    (tmp_path / "shared.toml").write_text("lr = 3e-4\n")
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 8
    for line in lines:
        parse_command_line(shlex.split(line, comments=True)[1:])


ANSWERS = re.findall(r"^\| `(train .*)` \| `(sterling: .*)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("line", "answer"), ANSWERS)
def test_configuration_page_error_messages_are_as_shown(line, answer, capsys):
    with pytest.raises(SystemExit) as left:
        raise SystemExit(main(shlex.split(line)))
    assert left.value.code == 2
    assert capsys.readouterr().err == answer + "\n"


def test_configuration_page_shows_three_error_messages():
    assert len(ANSWERS) == 3
