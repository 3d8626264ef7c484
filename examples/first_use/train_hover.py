"""Train in an environment of one's own, with a callback that ends the run when it is good enough.

python examples/first_use/train_hover.py
"""

from hover import Hover

import sterling


class Tell:
    """Log a number of its own, and stop when every seed is good enough."""

    def on_evaluation(self, event):
        returns = event.scores["return"]  # one number for each seed
        event.log({"hover/worst_seed": min(returns)})
        print(f"step {event.step:,}: {[round(each, 1) for each in returns]}")
        if min(returns) > 175:
            event.stop("every seed's mean return is above 175")


if __name__ == "__main__":
    run = sterling.train(
        "ppo",
        Hover,
        steps=80_000,
        seeds=3,
        evaluate_every=8_000,
        env_options={"workers": 0},  # step it in this process: it is cheap
        callbacks=[Tell()],
        out="runs/hover",
    )
    print(run.result["final"]["return"]["per_seed"])
    print("at 50 m, still, and 60 m are wanted:", run.policy([50.0, 0.0, 60.0]))
