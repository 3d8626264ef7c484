#!/usr/bin/env bash
# An algorithm and an environment of one's own, beside PPO, over three environments, as one figure.
#
#     bash examples/first_use/own_algorithm.sh [FOLDER] [STEPS] [SEEDS]
set -euo pipefail
folder=${1:-runs/first-use} steps=${2:-100_000} seeds=${3:-5}
here=$(dirname "$0")

sterling check "$here/pqn.py" --quick
sterling check "$here/catch.py:make" --quick
for environment in "$here/catch.py:make" CartPole-v1 Acrobot-v1; do
    name=$(basename "$environment" .py:make)
    for algorithm in "$here/pqn.py" ppo; do
        sterling train "$algorithm" "$environment" --steps "$steps" --seeds "$seeds" \
            --out "$folder/$(basename "$algorithm" .py)-$name" --quiet
    done
done
sterling report "$folder"/pqn-* "$folder"/ppo-* --out "$folder/figure"
