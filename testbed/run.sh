#!/usr/bin/env bash
# run.sh [FLAG...] [SCENARIO...] -- make what the testbed needs, then run it: all scenarios, or those named. -list names
# them, -shell gives a shell in a guest. Results: build/testbed.json. FARLOG_TESTBED_DIR: where roots and compiled parts
# are kept (build/testbed). Docs: testbed/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo \
		--preserve-env=PATH,HOME,GOPROXY,GOFLAGS,FARLOG_TESTBED_MIRROR,FARLOG_TESTBED_KERNELS,FARLOG_TESTBED_BENCH \
			"$@"; fi
}

dir=${FARLOG_TESTBED_DIR:-$PWD/build/testbed}
scripts/setup.sh build vm
qemu-system-x86_64 -machine none -netdev help 2>/dev/null | grep -qx stream || {
	echo "testbed: $(qemu-system-x86_64 --version | head -1): expected 7.2 or later, which can join guests by" \
		"sockets (-netdev stream)" >&2
	exit 1
}
mkdir -p "$dir"
go build -o "$dir/testbed" ./testbed
case " $* " in *" -list "*) exec "$dir/testbed" -list ;; esac
export FARLOG_TESTBED_BENCH=
for bench in verbs blocks; do
	case " $* " in *" $bench-bench "*) FARLOG_TESTBED_BENCH+=" $bench" ;; esac
done
root=$(as_root testbed/root.sh "$dir")
echo "testbed: building what runs in the guests"
as_root testbed/programs.sh "$root/root" "$dir/work"
exec "$dir/testbed" -root "$root" -programs "$dir/work/programs.img" "$@"
