#!/usr/bin/env bash
# bench.sh -- measure against floors: build/bench.json, one line a case, and a table.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build shm
mkdir -p build
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
virtual=$(grep -q '^flags.* hypervisor' /proc/cpuinfo && echo ', virtual machine' || true)
export FARLOG_BENCH_MACHINE="${processor:-$(uname -m)}, $(nproc) cores$virtual, Linux $(uname -r)"
FARLOG_BENCH_DATE=$(date -u +%F)
export FARLOG_BENCH_DATE
hardened="-fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3" # as what is shipped
# shellcheck disable=SC2086
cc -std=gnu11 -D_GNU_SOURCE -O2 -fno-plt -Wall $hardened -Irdma/include -Irdma/src rdma/bench/*.c rdma/src/*/*.c \
	-o build/bench -lpthread
go build -o build/gobench ./pkg/internal/bench
echo "on $FARLOG_BENCH_MACHINE, $FARLOG_BENCH_DATE"
build/bench >build/bench.json
build/gobench >>build/bench.json
echo "bench: $(wc -l <build/bench.json) cases in build/bench.json"
