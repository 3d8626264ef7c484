"""Names of other libraries are answered with what they are called here."""

import functools
import json
import re
from importlib import resources

import pytest

import sterling
from sterling import algorithms
from sterling.algorithms import ALGORITHMS
from sterling.cli import main
from sterling.cli_options import parse_command_line
from sterling.commands.options.algorithm_options import config_fields
from sterling.envs.registry import find_backend, names
from sterling.lookup.name_suggestions import nearest_names
from sterling.lookup.peer_names import (
    KINDS,
    RUN_WORDS,
    peer_table,
    unknown_algorithm,
    unknown_environment,
    unknown_option,
)
from sterling.training.config.run_arguments import TRAIN_ARGUMENTS
from sterling.types import Mistake

TABLE = json.loads(resources.files("sterling.lookup").joinpath("peer_names.json").read_text())


@functools.cache
def all_fields():
    return {field.name for name in ALGORITHMS for field in config_fields(name)[1]}


def options_of(algorithm):
    fields = [field.name for field in config_fields(algorithm)[1]]
    return ["--" + name.replace("_", "-") for name in (*fields, *TRAIN_ARGUMENTS)]


def test_peer_names_table_leads_to_existing_names():
    for row in TABLE["options"]:
        assert set(row["here"]) <= all_fields() | set(TRAIN_ARGUMENTS), row
        assert row["here"] or row["remark"], row
        assert set(row) == {"peers", "word", "here", "remark"} | (
            {"value"} if row["here"] else set()
        )
    for row in TABLE["algorithms"]:
        assert not row["here"] or row["here"] in ALGORITHMS, row
        known = all_fields() & {field.name for field in config_fields(row["here"] or "ppo")[1]}
        assert set(row["fields"]) <= known | {"envs", "top"}, row
    assert set(RUN_WORDS) <= set(TRAIN_ARGUMENTS)
    assert all(
        peer in TABLE["peers"] for kind in KINDS for row in TABLE[kind] for peer in row["peers"]
    )


def test_peer_names_equal_to_own_names_mean_the_same():
    """A word that is also ours must mean the same: it is accepted."""
    for row in TABLE["options"]:
        if row["word"] in row["here"]:
            assert row["value"] == "same", row


def test_peer_names_table_has_no_duplicate_rows():
    rows = [(peer, row["word"], here) for row in TABLE["options"]
            for peer in row["peers"] for here in row["here"] or [""]]  # fmt: skip
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize(
    ("algorithm", "typed", "value", "said"),
    [
        ("ppo", "--learning-rate", "3e-4", ": it is called --lr here. Write --lr 3e-4"),
        ("ppo", "--total-timesteps", "1e6", "--steps here. Write --steps 1e6 (per seed)"),
        ("ppo", "--n-steps", "2048", "--length here. Write --length 2048"),
        ("dqn", "--n-steps", "3", "--n-step here. Write --n-step 3"),
        ("iql", "--n-steps", "9", "--updates here. Write --updates 9"),
        ("ppo", "--batch-size", "64", "--minibatch here. Write --minibatch 64"),
        ("sac", "--batch-size", "256", "--batch here. Write --batch 256"),
        ("sac", "--buffer-size", "1e6", "Write --capacity 1e6"),
        ("sac", "--learning-starts", "100", "Write --warmup 100"),
        ("sac", "--ent-coef", "0.2", "Write --alpha 0.2"),
        ("ppo", "--ent-coef", "0.0", "Write --entropy-coef 0.0"),
        ("ppo", "--clip-range", "0.2", "Write --clip 0.2"),
        ("ppo", "--vf-coef", "0.5", "Write --value-coef 0.5"),
        ("ppo", "--num-envs", "8", "Write --envs 8"),
        ("ppo", "--num-minibatches", "4", "--minibatch here (the size of a minibatch"),
        ("dqn", "--target-update-interval", "9", "--target-period here (in DQN; counted in upd"),
        ("grpo", "--num-generations", "8", "Write --group 8"),
        ("grpo", "--beta", "0.04", "Write --kl-coef 0.04"),
        ("grpo", "--max-completion-length", "64", "Write --limit 64"),
        ("grpo", "--per-device-train-batch-size", "64", "--prompts here (in GRPO: prompts per it"),
        ("ppo", "--policy-kwargs", None, "width=64 depth=2"),
        ("ppo", "--buffer-size", "9", "is called capacity in algorithms that have it, and this"),
        ("ppo", "--device", "cpu", "JAX chooses the device"),
        ("ppo", "--env-kwargs", None, "it is called --env here"),
    ],
)
def test_peer_option_name_is_answered_with_the_own_name(algorithm, typed, value, said):
    assert said in unknown_option(typed, options_of(algorithm), value=value)


def test_misspelt_peer_option_name_is_answered_with_the_own_name():
    known = options_of("ppo")
    said = "; did you mean --learning-rate, which is --lr here?"
    assert unknown_option("--learning-rat", known, value="1e-3") == said
    assert unknown_option("bufer_size", ["capacity"], otherwise="it has capacity") == (
        "; did you mean buffer_size, which is capacity here?"
    )
    assert unknown_option("--lrr", known) == "; did you mean --lr?"  # an own name comes first
    assert unknown_option("--bufer-size", known) == ""  # of no use here
    # no misspelling of batch_size
    assert unknown_option("size", known, otherwise="it has lr") == "; it has lr"


def test_peer_option_name_in_python_is_answered_alike():
    assert unknown_option("learning_rate", ["lr"], value="0.1") == (
        ": it is called lr here. Write lr=0.1"
    )
    with pytest.raises(
        Mistake, match=r"no field 'clip_range': it is called clip here. Write clip="
    ):
        sterling.train("ppo", "CartPole-v1", steps=1000, clip_range=0.1)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("ddpg_continuous_action", "it is called ddpg here"),
        ("sac_continuous_action", "it is called sac here"),
        ("dqn_atari", "it is called dqn here"),
        ("GRPOTrainer", "it is called grpo here"),
        ("DiscreteCQL", "it is called cql here"),
        ("DiscreteCQLConfig", "it is called cql here"),
        ("TD3PlusBC", "it is called td3bc here"),
        ("RecurrentPPO", "it is called recurrent-ppo here"),
        ("KTOTrainer", "it is called dpo here, with --loss kto"),
        ("any_percent_bc", "it is called bc here, with --top 0.1"),
        ("sac_n", "it is called edac here, with --diversity none"),
        ("HerReplayBuffer", "--hindsight future"),
    ],
)
def test_peer_algorithm_name_is_answered_with_the_own_name(word, said):
    assert said in unknown_algorithm(word)
    with pytest.raises(Mistake, match=re.escape(said)):
        algorithms.find(word)


@pytest.mark.parametrize("word", ["PPO", "SAC", "TD3", "DQN", "A2C", "GRPO", "IQL"])
def test_algorithm_in_capitals_is_answered_with_the_own_name(word):
    with pytest.raises(Mistake, match=f"'{word}': it is called {word.lower()} here$"):
        algorithms.find(word)


@pytest.mark.parametrize(
    ("word", "name"), [("PPO", "ppo"), ("MaskablePPO", "ppo"), ("RecurrentPPO", "recurrent-ppo")]
)
def test_unknown_algorithm_is_named_before_an_environment_in_a_file(word, name, tmp_path, capsys):
    world = tmp_path / "world.py"
    world.write_text("class World:\n    pass\n")
    assert main(["train", word, f"{world}:World", "--steps", "9"]) == 2
    assert f"Unknown algorithm '{word}': it is called {name} here" in capsys.readouterr().err


def test_peer_name_calql_settings_parse():
    row = next(row for row in TABLE["algorithms"] if row["word"] == "CalQL")
    said = next(each for each in peer_table("algorithms") if each.word == "CalQL").here.split()
    chosen = parse_command_line(["train", *said[:1], "Pendulum-v1", "--steps", "99", *said[1:]])
    assert {name: getattr(chosen, name) for name in row["fields"]} == row["fields"]


@pytest.mark.parametrize("row", TABLE["environments"], ids=lambda row: row["example"])
def test_peer_environment_name_is_answered_with_the_own_name(row):
    known = [name for each in names().values() for name in each]
    said = unknown_environment(row["example"], known)
    assert row["example_here"] in said
    assert row["example_here"] in [*known, ""]
    assert ("dataset" in said) == row["dataset"]


@pytest.mark.parametrize("name", ["PongNoFrameskip-v4", "HalfCheetah-v2", "halfcheetah-medium-v2"])
def test_peer_environment_name_is_not_accepted(name):
    with pytest.raises(Mistake, match=r"Pong-v5 here|HalfCheetah-v5"):
        find_backend(name)


def test_list_names_command_shows_the_peer_names_table(capsys):
    assert main(["list", "names", "clip_range"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["Stable-Baselines3", "clip_range", "clip"],
        ["Stable-Baselines3", "clip_range_vf", "clip_value"],
    ]
    assert main(["list", "environments", "PongNoFrameskip-v4"]) == 2
    assert "called Pong-v5 here" in capsys.readouterr().err


def test_list_algorithms_command_answers_peer_names(capsys):
    assert main(["list", "algorithms", "ppo"]) == 0
    words = [line.split()[:1] for line in capsys.readouterr().out.splitlines()]
    shown = [word for (word,) in filter(None, words) if word in ALGORITHMS]
    assert sorted(shown) == sorted(name for name in ALGORITHMS if "ppo" in name)
    assert main(["list", "algorithms", "GRPOTrainer"]) == 2
    assert "it is called grpo here" in capsys.readouterr().err


def test_another_command_says_which_command_has_the_option():
    said = unknown_option("--n-envs", ["--episodes", "--method"], value="5")
    assert said == ": sterling train calls it --envs"
    said = unknown_option("--n-eval-episodes", ["--episodes", "--method"], value="5")
    assert said == "; did you mean --episodes?"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "show RUN --policy best",
            "--policy: sterling evaluate and play have it; sterling show has --config, --worst, "
            "--best, --seed, --film, --page (see sterling show --help)",
        ),
        ("evaluate RUN --video x.mp4", "--video: sterling play has it; sterling evaluate has not"),
        (
            "data check FILE --quality medium",
            "--quality: sterling data make has it; sterling data check has --environment, --limit, "
            "--fix, --all (see sterling data check --help)",
        ),
        (
            "export RUN --seeds 3",
            "--seeds: sterling train and tune have it; sterling export has --seed ",
        ),
        ("play RUN --lr 3", "--lr: sterling train has it; sterling play has --video"),
        ("list algorithms --json", "--json: sterling evaluate and compare have it"),
        (
            "train ppo CartPole-v1 --policy MlpPolicy",
            "sterling evaluate and play have it; sterling train has not (leave it out: the network",
        ),
        ("train ppo CartPole-v1 --format X", "data export have it; sterling train has not (see"),
        ("train ppo CartPole-v1 --foramt X", "did you mean --format of sterling data import and"),
        ("train ppo X --polciy best", "did you mean --policy of sterling evaluate and play?"),
        ("train ppo CartPole-v1 --seed 3", "--seed: it is called --seeds here"),
        ("play RUN --banana 3", "--banana (see sterling play --help)"),
    ],
)
def test_option_of_another_command_is_answered_with_that_command(typed, said, capsys):
    with pytest.raises(SystemExit):
        main(typed.split())
    assert said in capsys.readouterr().err


def test_word_too_many_is_not_called_an_option(capsys):
    with pytest.raises(SystemExit):
        main(["resume", "RUN", "OTHER"])
    assert "Unexpected word 'OTHER'" in capsys.readouterr().err


def test_every_row_names_its_library_and_version():
    for kind in KINDS:
        for row in peer_table(kind):
            assert row.peer
            assert row.version
            assert "{" not in row.remark + row.here


TYPOS = {  # what was typed -> the option that was meant, of ppo
    **{"--gama": "--gamma", "--gmma": "--gamma", "--gae-lamda": "--gae-lambda"},
    **{"--entropy-cof": "--entropy-coef", "--entropi-koef": "--entropy-coef"},
    **{"--max-grad-nrom": "--max-grad-norm", "--max-gradnorm": "--max-grad-norm"},
    **{"--minbatch": "--minibatch", "--mini-batch": "--minibatch", "--epcohs": "--epochs"},
    **{"--epoch": "--epochs", "--lenght": "--length", "--widht": "--width", "--lrr": "--lr"},
    **{"--activaton": "--activation", "--actvtion": "--activation", "--aneal": "--anneal"},
    **{"--normalize-obs": "--normalise-obs", "--obs-normalise": "--normalise-obs"},
    **{"--episodes-evaluate": "--evaluate-episodes", "--evaluate-epsodes": "--evaluate-episodes"},
    **{"--seed": "--seeds", "--sedes": "--seeds", "--stpes": "--steps", "--strategi": "--strategy"},
    **{"--checkpoint-minute": "--checkpoint-minutes", "--coef-value": "--value-coef"},
    **{"--evaluate-evry": "--evaluate-every", "--tensorbord": "--tensorboard"},
    **{"--limit-evaluate": "--evaluate-limit", "--log-evry": "--log-every", "--quite": "--quiet"},
}
UNRELATED = (  # words that no option of ppo resembles
    *("--banana", "--rate", "--gpu", "--port", "--verbosity", "--workers", "--speed"),
    *("--render", "--resume", "--optimizer", "--scheduler", "--dropout", "--momentum"),
)


def test_misspelt_options_are_recognised_and_unrelated_words_are_not():
    known = options_of("ppo")
    hits = {typed: (nearest_names(typed, known) or [""])[0] for typed in TYPOS}
    assert {typed: hit for typed, hit in hits.items() if hit != TYPOS[typed]} == {}
    assert {
        word: nearest_names(word, known) for word in UNRELATED if nearest_names(word, known)
    } == {}


@pytest.mark.parametrize("letter", range(3))
def test_long_option_names_with_two_typos_are_suggested(letter):
    known = options_of("ppo")
    for right in (each for each in known if len(each) > 9):
        swapped = right[: 3 + letter] + right[4 + letter] + right[3 + letter] + right[5 + letter :]
        wrong = swapped[:-1]  # a swap, and the last letter is missing
        assert right in nearest_names(wrong, known, 3), wrong


def test_a_name_that_several_backends_have_is_suggested_once():
    known = ("CartPole-v1", "CartPole-v1", "CartPole-v0")
    assert nearest_names("CartPol-v1", known, 3) == ["CartPole-v1", "CartPole-v0"]


def test_list_without_a_kind_prints_what_can_be_listed(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for kind in ("algorithms", "environments", "sources", "names"):
        assert f"sterling list {kind} " in out
