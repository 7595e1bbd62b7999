#!/usr/bin/env bash
# bench-java.sh -- the Java client and the Log4j appender against C, files and their neighbours: build/bench-java.json,
# one line a case, and a table.
#   scripts/bench-java.sh [GROUP,...]   all, or those that begin so: append, alloc, jmh, log4j2, farlog, chronicle,
#                                       aeron, disruptor
#   FARLOG_BENCH_FORKS (4), FARLOG_BENCH_SECONDS (2, for each target of a fork), FARLOG_BENCH_DIR (build/bench-java:
#   files of those that write to a disk), FARLOG_BENCH_JVM (options of every JVM, such as -XX:+UseSystemMemoryBarrier),
#   FARLOG_BENCH_PATIENCE (60 seconds in all, to wait for other programs and to repeat what they disturbed)
set -euo pipefail
cd "$(dirname "$0")/.."

home=$(scripts/java.sh find) || { scripts/java.sh; exit; } # which says what is missing
forks=${FARLOG_BENCH_FORKS:-4}
seconds=${FARLOG_BENCH_SECONDS:-2}
folder=${FARLOG_BENCH_DIR:-build/bench-java}
module=java/farlog-bench
natives=$PWD/java/farlog-client/target/natives/linux-$(uname -m)

scripts/setup.sh build shm
echo "bench-java: building"
scripts/java.sh -pl farlog-bench -am -DskipTests package
cc -std=gnu11 -O2 -Wall -shared -fPIC -Irdma/include $module/src/main/c/side.c -o $module/target/libside.so \
	-L"$natives" -lfarlog -Wl,-rpath,"$natives"
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
virtual=$(grep -q '^flags.* hypervisor' /proc/cpuinfo && echo ', virtual machine' || true)
java_version=$("$home/bin/java" --version | sed -n 2p)
FARLOG_BENCH_MACHINE="${processor:-$(uname -m)}, $(nproc) cores$virtual, Linux $(uname -r), $java_version"
FARLOG_BENCH_DATE=$(date -u +%F)
export FARLOG_BENCH_MACHINE FARLOG_BENCH_DATE
# Chronicle and Aeron reach into the JDK; their flags are in the module's POM, for the tests as well.
read -ra opens <<<"$(tr '\n' ' ' <$module/pom.xml | sed 's/.*<bench.opens>//; s/<\/bench.opens>.*//')"
mkdir -p "$folder"
echo "on $FARLOG_BENCH_MACHINE, $FARLOG_BENCH_DATE; load $(cut -d' ' -f1-3 /proc/loadavg)"
# shellcheck disable=SC2086
"$home/bin/java" ${FARLOG_BENCH_JVM:-} --enable-native-access=ALL-UNNAMED "${opens[@]}" \
	-Dfarlog.library.path="$natives/libfarlog.so" -Dfarlog.bench.side="$PWD/$module/target/libside.so" \
	-Dchronicle.analytics.disable=true -Dchronicle.announcer.disable=true -Dslf4j.internal.verbosity=ERROR \
	-cp "$module/target/classes:$module/target/lib/*" io.github.farlog.bench.Bench \
	"$folder" build/bench-java.json "$forks" "$seconds" "${FARLOG_BENCH_PATIENCE:-60}" "$@"
