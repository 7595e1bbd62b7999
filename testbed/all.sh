#!/usr/bin/env bash
# all.sh [FLAG...] -- all scenarios, and beside them, with a little of the processors, the model of members; its largest
# run, of three writers, is left to make model. Fails where either does.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh build vm model # here, or both would install at a time
mkdir -p build
set -m # a process group of its own: the whole of it ends with this script
MODEL_SKIP=three-writers nice -n 5 model/run.sh >build/model.txt 2>&1 &
model=$!
set +m
trap 'kill -- -"$model" 2>/dev/null || true' EXIT

failed=0
testbed/run.sh "$@" || failed=1
wait "$model" || failed=1
cat build/model.txt
exit "$failed"
