#!/usr/bin/env bash
# build.sh [DIR [daemons]] -- bin/farlog, bin/farlogd and bin/farlog-archive, or those of another folder, from nothing
# but Go and a C compiler. They are position-independent; how the C core in the first two is hardened stands in
# rdma/src/*/core.go. The third has no C in it; with "daemons" it is left out.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=${1:-bin}
scripts/setup.sh build
mkdir -p "$bin" build
[ -x "$bin/farlogd" ] || echo "build: compiling $bin/farlog and $bin/farlogd (the first time takes a few minutes)"
version=$(scripts/version.sh)
linked="-X github.com/farlog/farlog/cmd/internal/version.linked=$version"
CGO_ENABLED=1 go build -buildmode=pie -ldflags "$linked" -o "$bin/" ./cmd/farlog ./cmd/farlogd
[ "${2:-}" = daemons ] || CGO_ENABLED=0 go build -buildmode=pie -ldflags "$linked" -o "$bin/" ./cmd/farlog-archive
