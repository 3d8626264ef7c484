"""The example of docs/critic-obs.md works as it stands, and its commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

import sterling
from sterling.cli_options import parse_command_line

PAGE = (Path(__file__).parents[1] / "docs" / "critic-obs.md").read_text()


def test_critic_obs_page_commands_parse():
    lines = re.findall(r"^ *(sterling train .*)$", PAGE, re.MULTILINE)
    chosen = [parse_command_line(shlex.split(line)[1:]) for line in lines if "my_robot" in line]
    assert [each.critic_obs or each.obs for each in chosen] == [
        "friction,true_pose", "camera_position", None, "camera_position"
    ]  # fmt: skip
    assert chosen[-1].teacher == "runs/teacher"


@pytest.mark.slow
def test_critic_obs_page_student_return_is_below_the_teachers(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "hints.py").write_text(code)
    world, teacher = f"{tmp_path / 'hints.py'}:Hints", tmp_path / "teacher"
    sterling.train("ppo", world, steps=40_000, seeds=3, lr=5e-3, out=teacher)
    student = sterling.train(
        "distill", world, teacher=teacher, obs="clue", steps=10_000, seeds=3, evaluate_episodes=400
    )
    taught = student.result["taught"]
    assert taught["teacher"]["estimate"] > 0.98
    assert abs(taught["difference"]["estimate"] + 0.25) < 0.05
