#!/usr/bin/env bash
# build.sh -- bin/farlog and bin/farlogd, from nothing but Go and a C compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build
mkdir -p bin build
[ -x bin/farlogd ] || echo "build: compiling bin/farlog and bin/farlogd (the first time takes a few minutes)"
CGO_ENABLED=1 go build -o bin/ ./cmd/farlog ./cmd/farlogd
