"""Games of two seats: rules, rewards that add up to one, and perfect play."""

import functools
import operator
import random

import pytest

from sterling.language import worlds
from sterling.language.scene import Message

GAMES = ("game:nim", "game:tic-tac-toe")


def play(world, scene, *talks):
    while scene.turn is not None:
        scene.say(talks[scene.turn.seat](scene))
    return [verdicts[-1].reward if verdicts else None for verdicts in scene.verdicts]


def chance(world, dice):
    return lambda scene: dice.choice([*world.moves(scene.position)])


@pytest.mark.parametrize("name", GAMES)
def test_two_player_game_final_rewards_sum_to_one(name):
    world, dice, ends = worlds.find_world(name), random.Random(0), set()
    for seed in range(60):
        scene = world.begin(seed, dice.choice(world.levels))
        first, second = play(world, scene, chance(world, dice), chance(world, dice))
        assert first + (second if second is not None else 1 - first) == 1.0
        ends.add(first)
        for verdicts in scene.verdicts:
            assert all((v.reward, v.reason) == (0.0, "moved") for v in verdicts[:-1])
            assert len(verdicts) <= world.turns
    assert ends == ({0.0, 1.0} if name == "game:nim" else {0.0, 0.5, 1.0})


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("text", ["", "z9", "10", "a0", "a9", "x" * 1000])
def test_an_illegal_move_loses(name, text):
    scene = worlds.find_world(name).begin(0, 0)
    scene.say(text)
    assert scene.turn is None
    assert [[v.reason for v in each] for each in scene.verdicts] == [["illegal"], []]
    scene = worlds.find_world(name).begin(1, worlds.find_world(name).levels[-1])
    scene.say(worlds.find_world(name).solve(scene))
    scene.say(text)
    assert [each[-1].reward for each in scene.verdicts] == [1.0, 0.0]
    assert scene.verdicts[0][-1].reason == "won"


def test_tic_tac_toe_messages_show_the_board_until_a_win():
    world = worlds.find_world("game:tic-tac-toe")
    scene = world.begin(0, 0)
    assert scene.turn.messages == (Message("user", "x: .../.../..."),)
    for move in ("5", "1", "3", "7"):
        scene.say(move)
    assert scene.turn.seat == 0
    assert scene.turn.messages == (Message("user", "x: o.x/.x./o.."),)
    scene.say("4")
    scene.say("6")
    assert scene.turn is not None
    scene.say("5")  # taken
    assert [each[-1].reason for each in scene.verdicts] == ["illegal", "won"]


def test_tic_tac_toe_solver_never_loses():
    world, dice = worlds.find_world("game:tic-tac-toe"), random.Random(0)
    assert play(world, world.begin(0, 0), world.solve, world.solve) == [0.5, 0.5]
    for seed in range(20):
        assert play(world, world.begin(seed, 0), world.solve, chance(world, dice))[0] >= 0.5
        assert play(world, world.begin(seed, 0), chance(world, dice), world.solve)[1] >= 0.5


def test_nim_solver_wins_exactly_where_the_nim_sum_is_nonzero():
    world = worlds.find_world("game:nim")
    for seed in range(30):
        scene = world.begin(seed, seed % 4)
        winning = functools.reduce(operator.xor, scene.position) != 0
        assert play(world, scene, world.solve, world.solve)[0] == float(winning)


def test_nim_messages_list_the_heaps_after_a_move():
    world = worlds.find_world("game:nim")
    scene = world.begin(0, 2)
    scene.position = (3, 1, 2)
    scene.say("a3")
    assert scene.turn.messages == (Message("user", "b1 c2"),)
    scene.say("a1")  # nothing is left there
    assert [each[-1].reason for each in scene.verdicts] == ["won", "illegal"]
