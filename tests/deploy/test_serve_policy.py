"""A served policy answers with the run's own actions, in batches and with memories, and says what
is wrong with a request."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import deployed_worlds as worlds
import numpy as np
import odd_worlds
import pytest

import sterling
from sterling.cli import main
from sterling.deploy.serving.policy_server import PolicyServer
from sterling.deploy.serving.policy_sessions import PolicySessions
from sterling.deploy.serving.request_batching import RequestBatcher
from sterling.types import Mistake


async def ask(port, method, path, body=b""):
    """The status and the JSON answer of one request, in a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{method} {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def served(run, talk):
    """What ``talk(port, server)`` returns while the run is served."""

    async def both():
        server, ready = PolicyServer(PolicySessions(run)), asyncio.Queue()
        task = asyncio.create_task(server.serve("127.0.0.1", 0, ready.put_nowait))
        try:
            return await talk(await ready.get(), server)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    return asyncio.run(both())


def act(port, **body):
    return ask(port, "POST", "/act", json.dumps(body).encode())


def test_concurrent_requests_get_their_own_actions_in_few_batches():
    run = worlds.new_run("ppo", "CartPole-v1")
    obs = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)

    async def talk(port, server):
        answers = await asyncio.gather(*[act(port, obs=one.tolist()) for one in obs])
        return answers, (await ask(port, "GET", "/health"))[1]

    answers, health = served(run, talk)
    assert [status for status, _ in answers] == [200] * 40
    own = [int(run.policy(one)) for one in obs]
    assert [answer["action"] for _, answer in answers] == own
    assert len(set(own)) == 2
    assert health["requests"] == 40
    assert health["batches"] < 40


def test_sessions_remember_their_own_episodes():
    run = worlds.new_run("recurrent-ppo", "Pendulum-v1", width=16, length=8, minibatch=64)
    rng = np.random.default_rng(0)
    obs, rewards = rng.normal(size=(3, 6, 3)).astype(np.float32), rng.normal(size=(3, 6))

    async def session(port, name):
        made = []
        for t in range(6):
            reward = float(rewards[name, t - 1]) if t else 0.0
            body = {"session": str(name), "reward": reward, "begin": t in (0, 4)}
            status, answer = await act(port, obs=obs[name, t].tolist(), **body)
            assert status == 200
            made.append(answer["action"])
        return made

    async def talk(port, server):
        made = await asyncio.gather(*[session(port, name) for name in range(3)])
        ended = await ask(port, "POST", "/end", b'{"session": "1"}')
        again = await ask(port, "POST", "/end", b'{"session": "1"}')
        return made, ended, again

    made, ended, again = served(run, talk)
    assert (ended, again) == ((200, {"ended": True}), (200, {"ended": False}))
    for name in range(3):
        player, own = run.player(), []
        for t in range(6):
            if t == 4:
                player = run.player()
            own.append(player(obs[name, t]))
            player.notice(float(rewards[name, t]), False)
        np.testing.assert_allclose(made[name], own, atol=1e-5)


def test_policy_server_accepts_dict_observations_as_json():
    run = worlds.new_run("ppo", odd_worlds.OddForms)
    obs = {"place": [[0.1, 0.2], [0.3, 0.4]], "kind": 2, "parts": [[1, 0], [1, 2]],
           "action_mask": [0, 1, 0, 1, 0]}  # fmt: skip

    async def talk(port, server):
        found = await act(port, obs=obs), await ask(port, "GET", "/spec")
        stuck = await act(port, obs={**obs, "action_mask": [0, 1, 0, 0, 0]})
        wrong = [{"kind": 1.5}, {"kind": 7}, {"place": [[0.1, 0.2], [0.3, 1e39]]}]
        return found, stuck, [await act(port, obs={**obs, **each}) for each in wrong]

    (answer, (_, spec)), stuck, wrong = served(run, talk)
    assert stuck[0] == 400
    assert "leaves choice 2 of 2 without an option, so no action can be" in stuck[1]["error"]
    assert answer == (200, {"action": [1, 0]})  # the only ones that are allowed
    assert [entry["path"] for entry in spec["observation"]][-1] == ["place"]
    assert [status for status, _ in wrong] == [400] * 3
    lines = [answer["error"] for _, answer in wrong]
    assert lines[0].startswith("obs['kind'] must hold whole numbers")
    assert lines[1].startswith("obs['kind'] is 7, outside Discrete(")
    assert lines[2] == "obs['place'] holds NaN or infinity"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b'{"obs": [1, 2', "the body is not JSON"),
        (b"[]", "send an object with the observation"),
        (b'{"obs": [1, 2, 3]}', "obs must have the shape (4,); got (3,)"),
        (b'{"obs": [1, 2, 3, "x"]}', "obs must be numbers"),
        (b'{"obs": [1, 2, 3, NaN]}', "obs holds NaN"),
        (b'{"obs": [1, 2, 3, 4], "observation": 1}', "unknown field 'observation'"),
        (b'{"obs": [1, 2, 3, 4], "reward": "high"}', "reward must be a finite number"),
    ],
)
def test_a_wrong_request_gets_400_and_one_line(body, line):
    run = worlds.new_run("ppo", "CartPole-v1")

    async def talk(port, server):
        return await ask(port, "POST", "/act", body), await act(port, obs=[0, 0, 0, 0])

    (status, answer), good = served(run, talk)
    assert status == 400
    assert line in answer["error"]
    assert "\n" not in answer["error"]
    assert good[0] == 200


def test_policy_server_survives_wrong_paths_and_garbage():
    run = worlds.new_run("ppo", "CartPole-v1")

    async def talk(port, server):
        found = [await ask(port, "GET", "/act"), await ask(port, "POST", "/nothing", b"{}")]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x00\x01garbage\r\n\r\n")
        writer.close()
        return found, await act(port, obs=[0, 0, 0, 0])

    (wrong, missing), good = served(run, talk)
    assert wrong == (405, {"error": "use POST /act"})
    assert missing[0] == 404
    assert good[0] == 200


def test_requests_of_one_session_never_share_a_batch():
    batches = []

    def answer(requests):
        batches.append(list(requests))
        return requests

    async def talk():
        batcher = RequestBatcher(answer, limit=4, wait=0.0)
        task = asyncio.create_task(batcher.run())
        asked = [batcher.ask((at, key), key) for at, key in enumerate("aabacbb")]
        found = await asyncio.gather(*asked)
        task.cancel()
        batcher.close()
        return found

    assert asyncio.run(talk()) == [(at, key) for at, key in enumerate("aabacbb")]
    for batch in batches:
        assert len({key for _, key in batch}) == len(batch) <= 4
    for name in "ab":  # and they keep their order
        order = [at for batch in batches for at, key in batch if key == name]
        assert order == sorted(order)


def test_request_batching_passes_policy_errors_to_clients():
    def answer(requests):
        raise Mistake("no")

    async def talk():
        batcher = RequestBatcher(answer, limit=4, wait=0.0)
        task = asyncio.create_task(batcher.run())
        with pytest.raises(Mistake, match="no"):
            await batcher.ask(1)
        task.cancel()
        batcher.close()

    asyncio.run(talk())


@pytest.mark.slow
def test_the_command_serves_until_ctrl_c(tmp_path, capsys):
    out = tmp_path / "run"
    sterling.train("ppo", "CartPole-v1", steps=256, envs=2, length=64, seeds=1, out=out,
                   width=8, minibatch=64, epochs=1, evaluate_episodes=0)  # fmt: skip
    assert main(["serve", str(out), "--port", "70000"]) == 2
    assert "ports lie between" in capsys.readouterr().err
    words = [sys.executable, "-m", "sterling", "serve", str(out), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving ppo of CartPole-v1 on http://127.0.0.1:")
        address = line.split(" on ")[1].split()[0]
        request = urllib.request.Request(f"{address}/act", b'{"obs": [0, 0, 0, 0]}')
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["action"] in (0, 1)
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(f"{address}/act", b"{}", timeout=60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stdout.read() == "stopped\n"
