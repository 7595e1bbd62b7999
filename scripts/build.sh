#!/usr/bin/env bash
# build.sh [DIR] -- bin/farlog and bin/farlogd, or those of another folder, from nothing but Go and a C compiler. They
# are position-independent; how the C core in them is hardened stands in rdma/src/*/core.go.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=${1:-bin}
scripts/setup.sh build
mkdir -p "$bin" build
[ -x "$bin/farlogd" ] || echo "build: compiling $bin/farlog and $bin/farlogd (the first time takes a few minutes)"
version=$(scripts/version.sh)
CGO_ENABLED=1 go build -buildmode=pie -ldflags "-X github.com/farlog/farlog/cmd/internal/version.linked=$version" \
	-o "$bin/" ./cmd/farlog ./cmd/farlogd
