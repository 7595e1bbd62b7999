#!/bin/sh
# run.sh -- builds and runs the tests of the C core. usage: rdma/test/run.sh [quick] [part ...]
#
# Parts: unit conformance crash sweep far cxx examples install clang mutants verbs asan tsan fuzz. Without an argument
# all of them. quick: with a tenth of the runs below, and of the mutants those that unit tests find; without a part
# those that make test takes. Different parts of the build "release" may run at once.
# How much: CRASHES=n crashes in the full run (100000), BLOCK_CRASHES=n of a ring on blocks (30000), FILE_CRASHES=n of a
# ring in a file (20000), FAR_CRASHES=n power cuts of a target (400), MUTANT_PROGRAMS=LIST to play only the tests of
# these programs with mutants, MEMBER_RUNS=n of a stream with several members (10000),
# PERCENT=n of the calls that the sweep makes fail (100), ROUTE_RUNS=n of a route with spills (400), SPDLOG_KILLS=n
# (150), FUZZ_SECONDS=n for each fuzzer (5). SEED=n reproduces.
# VERBS_ADDRESS=address of an RDMA device here, for verbs
# BUILD=dir where to build (build/rdma-test)   CC=compiler
# Every part ends with one line "part: N passed, N failed", where cases may be skipped ", N skipped" as well; the exit
# code is 1 when anything failed.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-$root/build/rdma-test}
crashes=${CRASHES:-100000}
fuzz_seconds=${FUZZ_SECONDS:-5}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/farlog-test.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
jobs=$(nproc)
status=0

fail() {
	echo "$1: 0 passed, 1 failed"
	status=1
}

# configure NAME MESON-OPTIONS... -- makes $build/NAME, once.
configure() {
	name=$1
	shift
	if [ ! -f "$build/$name/build.ninja" ]; then
		meson setup "$build/$name" "$root/rdma" -Dtests=true "$@" >"$scratch/setup.log" 2>&1 || {
			tail -20 "$scratch/setup.log"
			return 1
		}
	fi
}

# make_targets NAME TARGET... -- builds; shows the output only when it fails or warns.
make_targets() {
	name=$1
	shift
	ninja -C "$build/$name" -j "$jobs" "$@" >"$scratch/ninja.log" 2>&1 || {
		grep -vE '^\[[0-9]+/[0-9]+\] (Compiling|Linking)' "$scratch/ninja.log" | tail -40
		return 1
	}
}

# explain LOG -- why a part failed: the tests that failed by name, the test in which a sanitizer spoke, and what was
# said there.
explain() {
	grep -E '^\[  FAILED  \] |^\[   LINE   \]|: FAILED|: SURVIVED|: ERROR: ' "$1" | head -40
	awk '
		/^\[ RUN      \]/ { test = $0 }
		/ERROR: .*Sanitizer|WARNING: ThreadSanitizer|runtime error:|Assertion .* failed/ && !left {
			print "in " test
			left = 60
		}
		left { print; if (!--left) exit }' "$1"
	echo "the end of $1:"
	tail -20 "$1"
}

# show LOG CODE PART -- the end of a log: its summary when it went well, more when not.
show() {
	if [ "$2" -eq 0 ]; then
		grep -E ': [0-9]+ passed, [0-9]+ failed|^(crash|mutants|conformance|takeover|members|routes): |skipped|seed=' \
			"$1"
	else
		explain "$1"
		echo "$3: exit code $2"
		grep -qE '[1-9][0-9]* failed' "$1" || echo "$3: 0 passed, 1 failed" # it ended before it could count
		status=1
	fi
}

# run PART COMMAND... -- with its whole output in build/logs/PART.log; a line of its own when the command gives none.
run() {
	part=$1
	shift
	mkdir -p "$build/logs"
	"$@" >"$build/logs/$part.log" 2>&1
	code=$?
	show "$build/logs/$part.log" $code "$part"
}

# Of debug information what a backtrace needs: lines, no variables. The machine code is the same.
lines="-Ddebug=false -Dc_args=-g1"

# Of what a sanitizer looks at, little is optimized: it is half of the compiler's time, and what it runs costs hardly
# more.
lightly="-Doptimization=1 $lines"

release() {
	mkdir -p "$build"
	(flock 9 && { configure release -Dexamples=true -Dwerror=true $lines && make_targets release all; } 9>&-) \
		9>"$build/lock"
}

part_unit() {
	release || { fail unit; return; }
	run unit "$build/release/test/unit"
}

# part_clang -- the other compiler's machine code: what it makes of the stores and flushes that an acknowledgement
# stands on.
part_clang() {
	clang=$(find_clang) || { echo "clang: skipped: clang is missing"; return; }
	CC=$clang configure clang $lines && make_targets clang test/unit || { fail clang; return; }
	for group in stores methods; do
		run "clang-$group" "$build/clang/test/unit" $group
	done
}

part_conformance() {
	release || { fail conformance; return; }
	run conformance "$build/release/test/conformance"
}

part_crash() {
	release || { fail crash; return; }
	CRASHES=$crashes run crash "$build/release/test/crash"
	CRASHES=${BLOCK_CRASHES:-30000} run crash-blocks "$build/release/test/crash" --blocks
	CRASHES=${FILE_CRASHES:-20000} run crash-files "$build/release/test/crash" --files
	run takeover "$build/release/test/takeover"
	RUNS=${MEMBER_RUNS:-10000} run members "$build/release/test/members"
	RUNS=${ROUTE_RUNS:-400} run routes "$build/release/test/routes"
}

# part_sweep -- each call into kernel and libraries made to fail once, in each scenario.
part_sweep() {
	release || { fail sweep; return; }
	run sweep "$build/release/test/sweep"
}

# part_mutants -- each fault in rdma/test/mutants, built into the tests that must find it.
part_mutants() {
	release || { fail mutants; return; }
	run mutants go -C "$root" run ./pkg/internal/mutant/catch -build "$build/release" -programs "${MUTANT_PROGRAMS:-}"
}

# part_far -- rings of a target in other hands, over libfabric on the loopback.
part_far() {
	release || { fail far; return; }
	CRASHES=${FAR_CRASHES:-400} run far-crash "$build/release/test/far-crash"
	run far-test "$build/release/test/far-test"
}

part_asan() {
	configure asan -Db_sanitize=address,undefined -Db_lundef=false $lightly &&
		make_targets asan test/unit test/crash test/conformance test/members test/routes ||
		{ fail asan; return; }
	export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
	run asan-unit "$build/asan/test/unit"
	FARLOG_TEST_FLUSH=write run asan-conformance "$build/asan/test/conformance" \
		# on blocks by one way: the others differ in what the device does
	CRASHES=10000 run asan-crash "$build/asan/test/crash"
	CRASHES=3000 run asan-crash-blocks "$build/asan/test/crash" --blocks
	CRASHES=2000 run asan-crash-files "$build/asan/test/crash" --files
	RUNS=500 run asan-members "$build/asan/test/members"
	RUNS=60 run asan-routes "$build/asan/test/routes"
}

part_tsan() {
	# gcc says of every fence that this sanitizer cannot see it; none of ours carries an order that a shared word does
	# not.
	configure tsan -Db_sanitize=thread -Db_lundef=false $lightly \
		"-Dc_args=-g1 ${TSAN_CFLAGS:--Wno-tsan -Wno-unknown-warning-option}" &&
		make_targets tsan test/unit test/far-test || { fail tsan; return; }
	for group in shared turns reader writer outcome rewind clock nvme pack members members_replace reader_members \
		reader_members_epoch route route_spill route_batch route_late heartbeat consume consume_ring settings renew; do
		TSAN_OPTIONS="suppressions='$root/rdma/test/tsan.supp'" run "tsan-$group" "$build/tsan/test/unit" $group
	done
	for group in slow twins fence drain route; do # a target's threads
		TSAN_OPTIONS="suppressions='$root/rdma/test/tsan.supp'" run "tsan-far-$group" "$build/tsan/test/far-test" $group
	done
}

# part_verbs -- what the device itself promises, and what every region does, by it; without one it says what is missing.
part_verbs() {
	release || { fail verbs; return; }
	mkdir -p "$build/logs"
	"$build/release/test/verbs" "${VERBS_ADDRESS:-127.0.0.1}" >"$build/logs/verbs.log" 2>&1
	code=$?
	if [ $code -eq 77 ]; then cat "$build/logs/verbs.log"; return; fi
	show "$build/logs/verbs.log" $code verbs
	FARLOG_TEST_VERBS="${VERBS_ADDRESS:-127.0.0.1}" run verbs-conformance "$build/release/test/conformance" verbs
}

find_clang() {
	for candidate in "${FUZZ_CC:-}" clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
		[ -n "$candidate" ] && command -v "$candidate" && return 0
	done
	return 1
}

# fuzz_one NAME -- first what is saved, then for $fuzz_seconds what comes of it. A crasher is left in build/crashers.
fuzz_one() {
	mkdir -p "$scratch/corpus-$1" "$build/crashers"
	"$build/fuzz/test/fuzz_$1" -max_total_time="$fuzz_seconds" -max_len=12000 \
		-artifact_prefix="$build/crashers/$1-" "$scratch/corpus-$1" "$root/rdma/test/fuzz/corpus/$1"
}

part_fuzz() {
	clang=$(find_clang) || { echo "fuzz: skipped: clang is missing (libFuzzer comes with it)"; return; }
	targets=$(cd "$root/rdma/test/fuzz" && echo fuzz_*.c)
	programs=
	for target in $targets; do
		programs="$programs test/${target%.c}"
	done
	# shellcheck disable=SC2086
	CC=$clang configure fuzz -Dfuzz=true -Db_lundef=false $lightly && make_targets fuzz $programs ||
		{ fail fuzz; return; }
	passed=0
	failed_fuzz=0
	for target in $targets; do
		target=${target#fuzz_}
		target=${target%.c}
		fuzz_one "$target" >"$scratch/fuzz-$target.log" 2>&1 &&
			passed=$((passed + 1)) || failed_fuzz=$((failed_fuzz + 1))
		grep -E '^Done|ERROR|SUMMARY|Base64' "$scratch/fuzz-$target.log" | sed "s/^/fuzz: $target: /"
	done
	[ "$failed_fuzz" -eq 0 ] || status=1
	echo "fuzz: $passed passed, $failed_fuzz failed"
}

part_cxx() {
	release || { fail cxx; return; }
	for standard in 17 20; do
		[ -x "$build/release/test/cxx$standard" ] ||
			{ echo "cxx$standard: a C++ compiler is missing"; fail cxx; return; }
		run "cxx$standard" "$build/release/test/cxx$standard"
	done
	[ -x "$build/release/test/spdlog" ] || { echo "cxx: spdlog: skipped: libspdlog-dev is missing"; return; }
	run spdlog "$build/release/test/spdlog" "${SPDLOG_KILLS:-150}"
	grep 'seed=' "$build/logs/spdlog.log"
}

# example NUMBER EXPECTED ARGUMENT... -- runs an example twice; each time it must print EXPECTED.
example() {
	number=$1
	expected=$2
	shift 2
	for _ in 1 2; do
		"$build/release/examples/example-$number" "$@" >"$scratch/example.log" 2>&1 &&
			grep -q "$expected" "$scratch/example.log" || {
			echo "example $number: expected \"$expected\""
			cat "$scratch/example.log"
			return 1
		}
	done
	examples_passed=$((examples_passed + 1))
}

part_examples() {
	release || { fail examples; return; }
	uri="mem:$scratch/orders.ring"
	[ "$(df --output=fstype "$scratch" | tail -1)" = tmpfs ] &&
		uri="mem:$(mktemp -d /var/tmp/farlog-test.XXXXXX)/orders.ring"
	examples_passed=0
	example 01-append '^OK lsn=' "$uri" && example 03-append '^OK lsn=.* level=persistent' "$uri" ||
		{ fail examples; return; }
	stored=10 # two runs of each: one record and two, and an EPOCH record a run
	if [ -x "$build/release/examples/example-04-spdlog" ]; then
		example 04-spdlog 'level=persistent' "$uri" || { fail examples; return; }
		stored=$((stored + 6))
	else
		echo "examples: 04-spdlog: skipped: libspdlog-dev is missing"
	fi
	if "$build/release/examples/example-02-drain" "$uri" "$scratch/store" >"$scratch/02.log" 2>&1 &&
		grep -q "stored $stored records" "$scratch/02.log" && [ -s "$scratch/store" ]; then
		echo "examples: $((examples_passed + 1)) passed, 0 failed"
	else
		cat "$scratch/02.log"
		fail examples
	fi
}

part_install() {
	release || { fail install; return; }
	if DESTDIR="$scratch/root" meson install -C "$build/release" >"$scratch/install.log" 2>&1 &&
		find "$scratch/root" -name 'libfarlog.so.0' | grep -q . && find "$scratch/root" -name farlog.pc | grep -q . &&
		[ "$(find "$scratch/root" -name '*.hpp' | wc -l)" = 5 ] &&
		! nm -D --defined-only "$build/release/libfarlog.so" | awk '{print $3}' | grep -vqE '^farlog_' &&
		find "$scratch/root" -name '*.so' -exec go -C "$root" run ./pkg/internal/hardened/check {} + \
			>>"$scratch/install.log" 2>&1; then
		echo "install: 1 passed, 0 failed"
	else
		tail -20 "$scratch/install.log"
		fail install
	fi
}

all="unit clang conformance crash sweep mutants far verbs asan tsan fuzz cxx examples install"
if [ "${1:-}" = quick ]; then
	shift
	all="unit conformance crash sweep mutants far cxx examples install"
	crashes=${CRASHES:-10000}
	export BLOCK_CRASHES="${BLOCK_CRASHES:-3000}" FILE_CRASHES="${FILE_CRASHES:-2000}" \
		FAR_CRASHES="${FAR_CRASHES:-40}" MUTANT_PROGRAMS="${MUTANT_PROGRAMS:-unit}"
	export MEMBER_RUNS="${MEMBER_RUNS:-1000}" ROUTE_RUNS="${ROUTE_RUNS:-40}" SPDLOG_KILLS="${SPDLOG_KILLS:-15}" \
		PERCENT="${PERCENT:-5}"
fi
for part in ${*:-$all}; do
	case $part in
	unit | clang | conformance | crash | sweep | mutants | far | verbs | asan | tsan | fuzz | cxx | examples | \
		install) "part_$part" ;;
	*)
		echo "run.sh: unknown part \"$part\"; expected [quick] and some of unit, clang, conformance, crash," \
			"sweep, mutants, far, verbs, asan, tsan, fuzz, cxx, examples, install" >&2
		exit 2
		;;
	esac
done
exit $status
