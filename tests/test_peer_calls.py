import copy
import pickle
import re

import pytest

import sterling
from sterling import commands
from sterling.algorithms import ALGORITHMS, train_call
from sterling.cli import main
from sterling.lookup.peer_names import peer_table, unknown_option
from sterling.training.trained_run import TrainedRun

RUN = TrainedRun(None, None, {}, None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("PPO", 'write sterling.train("ppo", ENVIRONMENT, steps=100_000)'),
        ("QRDQN", 'write sterling.train("qr-dqn", ENVIRONMENT, steps=100_000)'),
        ("MaskablePPO", 'write sterling.train("ppo", ENVIRONMENT, steps=100_000)'),
        ("DiscreteCQLConfig", 'write sterling.train("cql", data=FILE, updates=100_000)'),
        ("IQL", 'write sterling.train("iql", data=FILE, updates=100_000)'),
        ("GRPOConfig", 'write sterling.train("grpo", TASK, model=FOLDER, updates=500)'),
        ("PPOTrainer", 'write sterling.train("token-ppo", TASK, model=FOLDER, updates=500)'),
        ("KTOTrainer", "updates=500, loss='kto')"),
        ("HerReplayBuffer", 'hindsight="future"'),
        ("VecNormalize", "write sterling.train(..., normalise_obs=True) (part of the agent"),
        ("EvalCallback", "evaluate_every=10_000"),
        ("make_vec_env", "write sterling.train(..., envs=8)"),
        ("make", 'write gymnasium.make("CartPole-v1")'),
        ("MDPDataset", "write sterling.data.import_table(...)"),
        ("Monitor", "'Monitor': leave it out: returns and lengths"),
        ("generate", "write run.policy(text)"),
        ("export", "export_policy(run"),
    ],
)
def test_name_of_another_library_in_python_is_answered_with_the_call_here(name, said):
    with pytest.raises(AttributeError, match=re.escape(said)) as caught:
        getattr(sterling, name)
    assert "\n" not in str(caught.value)
    assert not hasattr(sterling, name)
    with pytest.raises(ImportError, match=re.escape(said)):
        exec(f"from sterling import {name}", {})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("predict", "A run has no 'predict': write run.policy(obs)"),
        ("save", 'write sterling.train(..., out="runs/mine")'),
        ("generate", "write run.policy(text)"),
        ("learn", "write sterling.train(...)"),
        ("fit", "write sterling.train(...)"),
        ("train", "write sterling.train(...)"),
        ("load", 'write sterling.load("runs/mine")'),
        ("evaluate_policy", "write run.evaluate(episodes=20)"),
        ("get_action", "write run.policy(obs)"),
        ("export", "export_policy(run"),
        ("push_to_hub", "sterling export runs/mine FOLDER"),
        ("state_dict", "write run.agent.state"),
    ],
)
def test_method_of_another_library_is_answered_with_the_method_of_a_run(name, said):
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(RUN, name)
    assert not hasattr(RUN, name)


def test_run_is_copied_pickled_and_shown_as_before():
    assert copy.copy(RUN).result == {}
    assert pickle.loads(pickle.dumps(RUN)).result == {}
    assert not hasattr(RUN, "_repr_png_")
    with pytest.raises(AttributeError, match="object has no attribute 'banana'"):
        _ = RUN.banana


def test_error_inside_a_property_of_a_run_is_reported_as_itself():
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute"):
        _ = RUN.needs_fresh_episodes


def test_unknown_name_of_the_package_is_an_ordinary_error():
    with pytest.raises(AttributeError, match="module 'sterling' has no attribute 'banana'"):
        _ = sterling.banana
    with pytest.raises(ImportError, match="cannot import name 'banana'"):
        exec("from sterling import banana", {})


@pytest.mark.parametrize("name", ["data", "language", "statistics", "deploy", "schedules"])
def test_rooms_that_pages_name_need_no_import_of_their_own(name):
    assert getattr(sterling, name).__name__ == f"sterling.{name}"


def test_every_call_in_the_table_has_an_answer_and_none_hides_a_name():
    rows = peer_table("calls")
    assert all(row.here or row.remark for row in rows)
    own = {name for name in vars(TrainedRun) if not name.startswith("_")}
    assert own & {row.word for row in rows} == set()
    assert {train_call(name) == "" for name in ALGORITHMS} == {False}
    for row in rows:
        for name in re.findall(r"\bsterling\.([a-z]\w*)", row.here):
            assert hasattr(sterling, name), row
        for name in re.findall(r"\brun\.([a-z]\w*)", row.here):
            assert name in own | {"settings", "result", "path", "agent"}, row


def test_callback_of_stable_baselines3_is_answered_with_callbacks():
    for typed, known in (("callback", ["lr", "clip"]), ("--callback", ["--lr", "--clip"])):
        said = unknown_option(typed, known, value="x")
        assert said.startswith(": write callbacks=[...] in Python: objects with on_log")
        assert "--stop-at" in said


@pytest.mark.parametrize(
    ("typed", "command"),
    [("generate", "play"), ("infer", "play"), ("predict", "play"), ("chat", "play"),
     ("enjoy", "play"), ("learn", "train"), ("push_to_hub", "export"), ("test", "evaluate")],
)  # fmt: skip
def test_command_of_another_library_is_answered_with_the_command_here(typed, command, capsys):
    with pytest.raises(SystemExit):
        main([typed, "runs/mine"])
    said = capsys.readouterr().err
    assert f"there is no command '{typed}': write sterling {command} (" in said
    assert said.count("\n") == 1


def test_commands_of_other_libraries_lead_to_existing_commands():
    assert set(commands.PEER_WORDS.values()) <= set(commands.COMMANDS)
    assert set(commands.PEER_WORDS) & set(commands.COMMANDS) == set()
