#!/usr/bin/env bash
# examples.sh -- compile and run the examples of the README and that of log/slog, twice each: a fresh ring and one that is there. Then that of a consumer in C,
# beside one in Go and farlog tail.
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

# As the README says, but once for both, and lightly: half of the compiler's time was optimizing.
mkdir "$dir/core"
printf '%s\n' "$PWD"/rdma/src/*.c | (cd "$dir/core" && xargs cc -std=gnu11 -D_GNU_SOURCE -O1 -I"$OLDPWD/rdma/include" -I"$OLDPWD/rdma/src" -c)
cc -std=gnu11 -D_GNU_SOURCE -O1 -Irdma/include rdma/examples/01-append.c "$dir"/core/*.o -o "$dir/append-c" -lpthread
cc -std=gnu11 -D_GNU_SOURCE -O1 -Irdma/include rdma/examples/05-consume.c "$dir"/core/*.o -o "$dir/consume-c" -lpthread
CGO_ENABLED=1 go build -o "$dir/append-go" ./examples/append
CGO_ENABLED=1 go build -o "$dir/slog-go" ./examples/slog
for example in append-c append-go slog-go; do
	expect "$dir/$example" "mem:$dir/ring-$example"
	expect "$dir/$example" "mem:$dir/ring-$example"
done
if out=$(FARLOG_C_CONSUMER="$PWD/$dir/consume-c" CGO_ENABLED=1 go test -count=1 -run '^TestConsumers_' ./pkg/internal/e2e 2>&1); then
	passed=$((passed + 1))
else
	echo "$out"
	failed=$((failed + 1))
fi
echo "examples: $passed passed, $failed failed"
[ "$failed" = 0 ]
