#!/usr/bin/env bash
# examples.sh -- compile and run the examples of the README and that of log/slog, twice each: a fresh ring and one that is there.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p build
dir=$(mktemp -d build/examples-XXXXXX) # not /tmp: that may be tmpfs, which cannot be persistent
trap 'rm -rf "$dir"' EXIT
passed=0
failed=0

expect() {
	local out
	if out=$("$@" 2>&1) && grep -qE 'level=persistent' <<<"$out"; then
		passed=$((passed + 1))
	else
		echo "example $*: $out"
		failed=$((failed + 1))
	fi
}

cc -std=gnu11 -D_GNU_SOURCE -O2 -Irdma/include -Irdma/src rdma/examples/01-append.c rdma/src/*.c -o "$dir/append-c" -lpthread
CGO_ENABLED=1 go build -o "$dir/append-go" ./examples/append
CGO_ENABLED=1 go build -o "$dir/slog-go" ./examples/slog
for example in append-c append-go slog-go; do
	expect "$dir/$example" "mem:$dir/ring-$example"
	expect "$dir/$example" "mem:$dir/ring-$example"
done
echo "examples: $passed passed, $failed failed"
[ "$failed" = 0 ]
