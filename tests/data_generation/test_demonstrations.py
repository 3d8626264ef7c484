"""Playing by hand: the real window and loop of pygame, with posted events and no screen."""

from typing import ClassVar

import gymnasium
import numpy as np
import pygame
import pytest
from gymnasium import spaces

from sterling.cli import main
from sterling.data import Dataset, check
from sterling.data_generation.demonstrations.action_bindings import (
    AxisBindings,
    example_keys,
    parse_axes,
    parse_bindings,
)
from sterling.data_generation.demonstrations.play_and_record import (
    DemonstrationOrder,
    record_demonstrations,
)
from sterling.data_generation.demonstrations.play_window import Pressed
from sterling.types import Mistake

DOWN, UP = pygame.KEYDOWN, pygame.KEYUP
LEFT, RIGHT, SPACE = pygame.K_LEFT, pygame.K_RIGHT, pygame.K_SPACE


def key(kind, code):
    return pygame.event.Event(kind, key=code)


class Walk(gymnasium.Env):
    """Moves by the action; ends at 3. ``script``: events that the user makes before each step."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 500}
    script = ()

    def __init__(self, render_mode=None, action_space=None):
        self.render_mode, self.shown = render_mode, 0
        self.observation_space = spaces.Box(-9, 9, (1,), np.float32)
        self.action_space = action_space or spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = np.zeros(1, np.float32)
        return self.at.copy(), {}

    def step(self, action):
        discrete = isinstance(self.action_space, spaces.Discrete)
        self.at += float(action) - 1 if discrete else float(action[0])
        return self.at.copy(), 1.0, bool(self.at[0] >= 3), False, {}

    def render(self):
        for event in self.script[self.shown] if self.shown < len(self.script) else ():
            pygame.event.post(event)
        self.shown += 1
        return np.full((20, 30, 3), 40, np.uint8)


class Declaring(Walk):
    """Says itself which keys mean what, as Atari's environments do."""

    def get_keys_to_action(self):
        return {(): 1, (LEFT,): 0, ("d",): 2}


@pytest.fixture(autouse=True)
def worlds(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    known = {"Walk-v0": Walk, "Declaring-v0": Declaring}
    for name, made in known.items():
        gymnasium.register(name, made)
    yield
    for name in known:
        del gymnasium.registry[name]


def play(script, out, name="Walk-v0", **how):
    Walk.script = (*script, [pygame.event.Event(pygame.QUIT)])
    order = DemonstrationOrder(name, **{"keys": "left=0,right=2", "idle": "1", **how})
    return record_demonstrations(order, out)


def test_keyboard_demonstration_records_held_and_tapped_keys_as_actions(tmp_path):
    script = [
        [],  # idle
        [key(DOWN, LEFT)],
        [],  # still held
        [key(UP, LEFT), key(DOWN, RIGHT)],
        [key(DOWN, LEFT)],  # both: the last one counts
        [key(UP, LEFT)],  # right is held still
        [key(DOWN, LEFT), key(UP, LEFT)],  # tapped between two pictures
        [key(UP, RIGHT)],
    ]
    assert play(script, tmp_path / "a") == 1
    data = Dataset(tmp_path / "a")
    assert data[0].action.tolist() == [1, 0, 0, 2, 0, 2, 0, 1]
    assert data[0].obs[:, 0].tolist() == [0, 0, -1, -2, -1, -2, -1, -2, -2]
    assert not data[0].ended  # the window was closed in the middle
    assert data.facts.environment == "Walk-v0"
    assert data.facts.sources[0].name == "a human with a keyboard"


def test_keyboard_demonstration_saves_episodes_and_backspace_discards(tmp_path):
    script = [
        [key(DOWN, LEFT)],
        [key(UP, LEFT), key(DOWN, pygame.K_BACKSPACE)],
        [key(DOWN, RIGHT)],
        *([],) * 2,  # ends at 3
        *([],) * 3,  # and again
        [key(DOWN, pygame.K_ESCAPE)],
    ]
    assert play(script, tmp_path / "a") == 2
    data = Dataset(tmp_path / "a")
    assert [one.action.tolist() for one in data] == [[2, 2, 2], [2, 2, 2]]
    assert data.ended.all()
    assert play(script, tmp_path / "a", episodes=1) == 1  # appended; no need to close the window
    assert len(Dataset(tmp_path / "a")) == 3
    assert [one for one in check(Dataset(tmp_path / "a")) if one.severity == "error"] == []


def test_turn_based_demonstration_steps_once_per_key_press(tmp_path):
    script = [[], [key(DOWN, RIGHT)], [], [], [key(UP, RIGHT)], [key(DOWN, LEFT)], []]
    assert play(script, tmp_path / "a", wait=True) == 1
    assert Dataset(tmp_path / "a")[0].action.tolist() == [2, 0]


def test_keyboard_demonstration_uses_the_environments_declared_keys(tmp_path):
    script = [[], [key(DOWN, pygame.K_d)], [key(UP, pygame.K_d), key(DOWN, LEFT)]]
    assert play(script, tmp_path / "a", "Declaring-v0", keys=None, idle=None) == 1
    assert Dataset(tmp_path / "a")[0].action.tolist() == [1, 2, 0]


def test_data_record_command_records_keyboard_demonstrations(tmp_path, capsys):
    Walk.script = [[key(DOWN, RIGHT)]]
    words = ["data", "record", "Walk-v0", "--by", "keyboard", "--keys", "left=0,right=2"]
    out = str(tmp_path / "demo")
    assert main([*words, "--episodes", "2", "--fps", "400", "--out", out]) == 0
    assert "2 episodes, 6 rows, mean return 3" in capsys.readouterr().out
    assert main(["data", "check", out]) == 0
    Walk.script = [[pygame.event.Event(pygame.QUIT)]]
    assert main([*words, "--out", str(tmp_path / "none")]) == 0
    assert "no episode was recorded" in capsys.readouterr().out


def test_key_bindings_of_box_actions_add_and_clip():
    space = spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 2.0]), dtype=np.float64)
    bound = parse_bindings("w=0.5:1,d=0.8:0,a=-0.8:0", space, "0:0.5")
    assert bound.action([]).tolist() == [0, 0.5]
    assert bound.action(["w"]).tolist() == [0.5, 1]
    assert bound.action(["w", "d"]).tolist() == [1, 1]
    np.testing.assert_allclose(bound.action(["x", "a", "d"]), [0, 0], atol=1e-9)
    several = parse_bindings("w=1:0,w+e=1:1", spaces.MultiDiscrete([2, 2]), None)
    assert several.action(["e", "w"]).tolist() == [1, 1]
    assert several.action(["e"]).tolist() == [0, 0]


def test_gamepad_axes_cover_the_range_of_each_box_component():
    space = spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 4.0]), dtype=np.float64)
    axes = parse_axes("0,-3", space)
    assert isinstance(axes, AxisBindings)
    assert axes.action({}).tolist() == [0, 2]
    assert axes.action({0: -1.0, 3: -1.0}).tolist() == [-1, 4]
    assert axes.action({0: 0.05, 3: 0.5}).tolist() == [0, 1]  # in the dead zone; inverted
    with pytest.raises(Mistake, match="an axis for each of the 2 components"):
        parse_axes("0", space)


def test_gamepad_events_update_the_pressed_buttons():
    pygame.display.init()
    pressed = Pressed()
    for kind, facts in (
        (pygame.JOYBUTTONDOWN, {"button": 2}),
        (pygame.JOYAXISMOTION, {"axis": 1, "value": -0.5}),
        (pygame.JOYHATMOTION, {"value": (-1, 1)}),
    ):
        pressed.notice(pygame, pygame.event.Event(kind, **facts))
    assert set(pressed.take_step()) == {"b2", "left", "up"}
    assert pressed.axes == {1: -0.5}
    pressed.notice(pygame, pygame.event.Event(pygame.JOYHATMOTION, value=(0, 0)))
    pressed.notice(pygame, pygame.event.Event(pygame.JOYBUTTONUP, button=2))
    assert pressed.take_step() == []
    assert not pressed.quit


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"keys": None}, r"Discrete\(3\). Add for example --keys left=0,right=1,up=2"),
        ({"keys": "left=3"}, r"the action 3 lies outside Discrete\(3\)"),
        ({"keys": "left=0.5"}, "the action 0.5 lies outside"),
        ({"keys": "left=0,left=1"}, "binds left twice"),
        ({"keys": "left"}, "names no key or no action; write KEY=ACTION"),
        ({"keys": "escape=1"}, "escape ends the recording"),
        ({"by": "mouse"}, "use keyboard or gamepad"),
        ({"by": "gamepad"}, "no gamepad is connected"),
        ({"fps": 0.0}, "--fps must be above 0"),
        ({"axes": "0"}, "--axes is for --by gamepad"),
        ({"name": "Wlak-v0"}, "cannot make 'Wlak-v0' .*did you mean Walk-v0"),
        ({"env_options": {"render_mode": None}}, "renders? .*picture"),
    ],
)
def test_invalid_demonstration_options_are_refused_in_one_line(how, said, tmp_path, monkeypatch):
    monkeypatch.setattr(Walk, "render", lambda self: None) if "env_options" in how else None
    with pytest.raises(Mistake, match=said) as caught:
        play([], tmp_path / "a", **how)
    assert "\n" not in str(caught.value)


def test_demonstration_without_a_display_is_refused(tmp_path, monkeypatch):
    for name in ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Mistake, match=r"there is no display for a window\. Run it on a machine"):
        play([], tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_example_key_bindings_parse():
    for space in (spaces.Discrete(2), spaces.Discrete(9, start=1), spaces.Box(-1, 1, (3,))):
        for buttons in (False, True):
            parse_bindings(example_keys(space, buttons=buttons), space, None)
