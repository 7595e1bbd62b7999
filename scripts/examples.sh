#!/usr/bin/env bash
# examples.sh -- compile and run the examples of the README and that of log/slog, twice each: a fresh ring and one that
# is there. Then those of the README at a stream of farlogd dev, in C also with the installed library as pkg-config
# finds it, and that of a consumer in C, beside one in Go and farlog tail.
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
for room in rdma/src/*/; do # files of two rooms may have the same name
	objects=$dir/core/$(basename "$room")
	mkdir -p "$objects"
	(cd "$objects" && cc -std=gnu11 -D_GNU_SOURCE -O1 -I"$OLDPWD/rdma/include" -I"$OLDPWD/rdma/src" -c \
		"$OLDPWD/$room"*.c)
done
cc -std=gnu11 -D_GNU_SOURCE -O1 -Irdma/include rdma/examples/01-append.c "$dir"/core/*/*.o -o "$dir/append-c" -lpthread
cc -std=gnu11 -D_GNU_SOURCE -O1 -Irdma/include rdma/examples/05-consume.c "$dir"/core/*/*.o -o "$dir/consume-c" \
	-lpthread
CGO_ENABLED=1 go build -o "$dir/append-go" ./examples/append
CGO_ENABLED=1 go build -o "$dir/slog-go" ./examples/slog
for example in append-c append-go slog-go; do
	expect "$dir/$example" "mem:$dir/ring-$example"
	expect "$dir/$example" "mem:$dir/ring-$example"
done

# The installed library: nothing is said to the compiler but what pkg-config says.
meson setup "$dir/meson" rdma --prefix "$PWD/$dir/prefix" --libdir lib -Doptimization=1 -Ddefault_library=shared \
	>"$dir/meson.log" &&
	meson install -C "$dir/meson" >>"$dir/meson.log" || { cat "$dir/meson.log"; exit 1; }
read -ra installed < <(PKG_CONFIG_PATH="$dir/prefix/lib/pkgconfig" pkg-config --cflags --libs farlog)
cc rdma/examples/01-append.c "${installed[@]}" -o "$dir/append-pc"
read -ra installed < <(PKG_CONFIG_PATH="$dir/prefix/lib/pkgconfig" pkg-config --cflags --libs farlog-history)
cc rdma/examples/05-consume.c "${installed[@]}" -o "$dir/consume-pc"
export LD_LIBRARY_PATH="$PWD/$dir/prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
expect "$dir/append-pc" "mem:$dir/ring-append-pc"

# By the name of a stream: the host agent of farlogd dev says where its ring is.
CGO_ENABLED=1 go build -o "$dir/" ./cmd/farlogd ./cmd/farlog
# The history is a library of its own: neither the core's nor a daemon holds any of it.
for file in "$dir/prefix/lib/libfarlog.so" "$dir/farlogd"; do
	if nm "$file" >"$dir/symbols" && grep -q farlog_writer_open "$dir/symbols" &&
		! grep -E 'farlog_consumer_open|store_segment_look' "$dir/symbols"; then
		passed=$((passed + 1))
	else
		echo "$file: expected symbols of the core, farlog_writer_open among them, and none of the history"
		failed=$((failed + 1))
	fi
done
"$dir/farlogd" dev --data-dir "$dir/dev" --listen 127.0.0.1:0 --metrics-listen off --ready-file "$dir/ready" \
	>"$dir/dev.log" 2>&1 &
daemon=$!
trap 'kill "$daemon" 2>/dev/null; wait "$daemon" 2>/dev/null; rm -rf "$dir"' EXIT
until [ -s "$dir/ready" ]; do
	kill -0 "$daemon" || { cat "$dir/dev.log"; exit 1; }
	sleep 0.05
done
control=$(sed -n 's/.*"control": *"\([^"]*\)".*/\1/p' "$dir/ready")
"$dir/farlog" stream create desk7/orders --size 1MiB --wait 60s --control "$control" >>"$dir/dev.log"
for example in append-c append-go append-pc; do
	FARLOG_AGENT="$dir/dev/host.sock" expect "$dir/$example" farlog://desk7/orders
done

if out=$(FARLOG_C_CONSUMER="$PWD/$dir/consume-pc" CGO_ENABLED=1 go test -v -count=1 -run '^TestConsumers_' \
	./pkg/internal/e2e 2>&1); then
	passed=$((passed + 1))
else
	echo "$out"
	failed=$((failed + 1))
fi
echo "examples: $passed passed, $failed failed"
[ "$failed" = 0 ]
