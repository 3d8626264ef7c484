"""Ten seeds in one program, and what may be said of them.

python examples/seeds_and_intervals.py
"""

import sterling

run = sterling.train("ppo", "CartPole-v1", steps=50_000, seeds=10)
final = run.result["final"]["return"]
print(f"return {final['estimate']:.0f}, 95 % interval [{final['low']:.0f}, {final['high']:.0f}]")
print("per seed:", [round(score) for score in final["per_seed"]])
