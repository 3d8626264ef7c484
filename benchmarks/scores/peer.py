"""What does Stable-Baselines3 reach on DQN's MountainCar with its zoo's settings, over seeds?

    .venv-bench/bin/python benchmarks/scores/peer.py [--seeds 0 1 2 ...]

The published figure is one run. This program (for a Python with stable-baselines3, as for `make
bench`) trains every seed on one thread and judges the last policy over 20 episodes, as
`benchmarks/scores/run.py` does with ours. Seeds that results/peer-dqn-MountainCar-v0.json holds
are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1]))

from benchmarks import evidence  # noqa: E402

RESULT = HERE / "results" / "peer-dqn-MountainCar-v0.json"
STEPS, EPISODES = 120_000, 20
ZOO = {  # rl-baselines3-zoo, hyperparams/dqn.yml, MountainCar-v0
    **{"learning_rate": 4e-3, "batch_size": 128, "buffer_size": 10_000, "learning_starts": 1000},
    **{"gamma": 0.98, "target_update_interval": 600, "train_freq": 16, "gradient_steps": 8},
    **{"exploration_fraction": 0.2, "exploration_final_eps": 0.07},
    "policy_kwargs": {"net_arch": [256, 256]},
}


def main() -> None:
    """Train the seeds that are missing and write what each reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="*", type=int, default=list(range(10)))
    asked = parser.parse_args().seeds
    begun = evidence.begin()
    torch.set_num_threads(1)
    found = json.loads(RESULT.read_text()) if RESULT.exists() else {"return": {}, "seconds": {}}
    found["settings"] = {"steps": STEPS, "episodes": EPISODES, **ZOO}
    found.pop("provenance", None)
    found["versions"] = evidence.versions()
    for seed in asked:
        if str(seed) not in found["return"]:
            start = time.perf_counter()
            found["return"][str(seed)] = train(seed)
            found["seconds"][str(seed)] = round(time.perf_counter() - start, 1)
            evidence.write(RESULT, found, begun, sorted(map(int, found["return"])))
            print(seed, found["return"][str(seed)], flush=True)


def train(seed: int) -> float:
    """The mean return of the last policy, acting greedily."""
    import gymnasium

    env = Monitor(gymnasium.make("MountainCar-v0"))
    model = DQN("MlpPolicy", env, seed=seed, **ZOO).learn(STEPS)
    judged = Monitor(gymnasium.make("MountainCar-v0"))
    judged.reset(seed=1000 + seed)
    returns, _ = evaluate_policy(
        model, judged, n_eval_episodes=EPISODES, return_episode_rewards=True
    )
    return float(np.mean(returns))


if __name__ == "__main__":
    main()
