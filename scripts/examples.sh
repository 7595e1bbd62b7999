#!/usr/bin/env bash
# examples.sh -- compile and run the two examples of the README, twice each: a fresh ring and one that is there.
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
for language in c go; do
	expect "$dir/append-$language" "mem:$dir/ring-$language"
	expect "$dir/append-$language" "mem:$dir/ring-$language"
done
echo "examples: $passed passed, $failed failed"
[ "$failed" = 0 ]
