#!/usr/bin/env bash
# demo.sh -- see demo/; the binaries are built.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh shm
exec go run ./demo "$@"
