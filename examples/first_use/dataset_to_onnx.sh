#!/usr/bin/env bash
# From a dataset to a fine-tuned policy in ONNX.
#
#     bash examples/first_use/dataset_to_onnx.sh [FOLDER] [DATASET] [UPDATES] [STEPS]
#
# Without a dataset one is made first, as D4RL's files are: an .hdf5 of PPO's own experience.
set -euo pipefail
folder=${1:-runs/first-dataset} data=${2:-} updates=${3:-5_000} steps=${4:-5_000}

if [ -z "$data" ]; then
    data=$folder/pendulum.hdf5
    sterling data make Pendulum-v1 --quality medium-replay --size 20_000 --out "$folder/made"
    sterling data export "$folder/made" "$data" --format d4rl
fi
sterling data check "$data" || true        # exit code 1 names what is wrong, and the repair
sterling train iql "$data" --environment Pendulum-v1 --updates "$updates" --seeds 2 --out "$folder/iql" --quiet
sterling resume "$folder/iql" --steps "$steps" --quiet        # fine-tune it in the environment
sterling export "$folder/iql" "$folder/policy.onnx"
