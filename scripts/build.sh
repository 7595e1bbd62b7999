#!/usr/bin/env bash
# build.sh [DIR [daemons]] -- bin/farlog, farlogd, farlog-archive and farlog-verify, or those of another folder, from
# nothing but Go and a C compiler. They are position-independent; how the C core in the first two is hardened stands in
# rdma/src/*/core.go. The others have no C in them; with "daemons" they are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=${1:-bin}
scripts/setup.sh build
mkdir -p "$bin" build
[ -x "$bin/farlogd" ] || echo "build: compiling $bin/farlog and $bin/farlogd (the first time takes a few minutes)"
version=$(scripts/version.sh)
linked="-X github.com/farlog/farlog/cmd/internal/version.linked=$version"
CGO_ENABLED=1 go build -buildmode=pie -ldflags "$linked" -o "$bin/" ./cmd/farlog ./cmd/farlogd
[ "${2:-}" = daemons ] && exit
CGO_ENABLED=0 go build -buildmode=pie -ldflags "$linked" -o "$bin/" ./cmd/farlog-archive
CGO_ENABLED=0 go build -buildmode=exe -ldflags "$linked" -o "$bin/" ./cmd/farlog-verify # static: it runs on any Linux
