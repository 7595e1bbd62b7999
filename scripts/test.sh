#!/usr/bin/env bash
# test.sh -- what needs no virtual machine, some stages at a time, because each waits now and then: whoever is done
# takes the next one. Each stage leaves its whole output in build/test/STAGE.log and one line here.
#   scripts/test.sh            make test: tidy vet pure go fault e2e examples core far java, the long tests short or
#                              left out
#   scripts/test.sh --check    make check: all of that at full length, and the stages race, fuzz and static
#   scripts/test.sh STAGE...   only these stages, at full length
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=1 # a machine may have it off by default; what must do without it is built so below
export GOFLAGS="${GOFLAGS:-} -buildmode=pie" # as scripts/build.sh: what the tests start is compiled once
logs=build/test
mkdir -p "$logs"
start=$SECONDS
export FARLOG_TEST_SHORT=${FARLOG_TEST_SHORT:-} # yes: short; for the stages, which are processes of their own
short=${FARLOG_TEST_SHORT:+-short}

# Where the race detector pays: what shares memory between goroutines. Not the control plane: its etcd is slow under it.
race_packages=(./pkg/record ./pkg/config ./pkg/identity ./pkg/metrics ./pkg/farlog/... ./pkg/store ./pkg/drain \
	./pkg/control/reconcile ./pkg/control/access)
# What must not need the C core, so that it builds without cgo.
pure_packages=(./pkg/record ./pkg/config ./pkg/doctor ./pkg/identity ./pkg/metrics ./pkg/plan ./pkg/api/... \
	./pkg/store/... ./pkg/audit/... ./pkg/control/... ./pkg/archive/... ./pkg/retention/...)

go_tests() {
	# Vetted by the stage vet. The timeout ends what hangs; a machine with other work takes several times as long.
	go test -v -vet=off -timeout 40m "$@"
}

stage_tidy() { scripts/format.sh --check c go && go_tests -count=1 ./pkg/internal/tidy; }
stage_vet() { # make check: the stage static vets more, go vet's own checks among it
	go mod tidy -diff
	[ -z "$short" ] || go vet ./...
	go vet -tags farlog_fault ./pkg/farlog ./pkg/drain ./pkg/merge
	echo "--- PASS: vet"
}
stage_go() {
	local packages
	packages=$(go list ./... | grep -v -e /pkg/internal/tidy -e /e2e$ -e /e2e/)
	go_tests $short $packages
}
stage_race() { # which Go does not build position-independent
	GOFLAGS=${GOFLAGS//-buildmode=pie/} go_tests -race -short "${race_packages[@]}"
}
stage_fault() { go_tests $short -tags farlog_fault -run 'Crash|Mutant|Fault' ./pkg/farlog ./pkg/drain; }
stage_e2e() { # in make test as go test keeps results: the tests note the sources of the programs that they run
	local again=-count=1
	[ -z "$short" ] || again=
	go_tests $short $again ./pkg/internal/e2e/...
}
stage_fuzz() { scripts/fuzz.sh 4s; }
stage_static() { scripts/static.sh; }
stage_examples() { scripts/examples.sh; }
stage_core() {
	local parts=(unit conformance crash sweep mutants cxx examples install)
	[ -n "$short" ] || parts+=(clang verbs asan tsan fuzz)
	rdma/test/run.sh ${short:+quick} "${parts[@]}"
}
stage_far() { rdma/test/run.sh ${short:+quick} far; } # beside the core: it waits more than it computes
stage_java() { scripts/format.sh --check java && scripts/java.sh; } # 77: no JDK here; skipped, and said so

stage_pure() { # make test only looks for imports of what needs cgo: building with and without compiles all twice
	local programs=(./cmd/farlog ./cmd/farlog-archive ./cmd/farlog-verify)
	CGO_ENABLED=0 go list -deps "${pure_packages[@]}" "${programs[@]}" >/dev/null
	echo "--- PASS: imports nothing that needs cgo"
	[ -z "$short" ] || return 0
	CGO_ENABLED=0 go build -o /dev/null "${programs[@]}"
	echo "--- PASS: builds without cgo"
}

# tally LOG -- "N passed, N failed", and what was skipped, summed over the log's own lines of that form, or over its Go
# tests.
tally() {
	if grep -qE '[0-9]+ passed, [0-9]+ failed' "$1"; then
		grep -oE '[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?' "$1"
	else
		awk '/^ *--- PASS/ { passed++ } /^ *--- FAIL/ { failed++ } /^ *--- SKIP/ { skipped++ }
			END { print passed + 0 " passed, " failed + 0 " failed, " skipped + 0 " skipped" }' "$1"
	fi | awk '{p += $1; f += $3; s += $5} END {print p " passed, " f " failed" (s > 0 ? ", " s " skipped" : "")}'
}

# failed_go_tests LOG -- each test that failed, and the last lines that it itself has written.
failed_go_tests() {
	awk -v keep=14 '
		/^=== (RUN|NAME|CONT|PAUSE) / { test = $3; next }
		/^ *--- FAIL: / { failed[++count] = $3 }
		{ line[test, ++lines[test]] = $0 }
		END {
			for (i = 1; i <= count; i++) print "failed: " failed[i]
			for (i = 1; i <= count; i++) {
				name = failed[i]
				from = lines[name] > keep ? lines[name] - keep + 1 : 1
				if (lines[name] > 0) print "the end of " name ":"
				for (n = from; n <= lines[name]; n++) print "  " line[name, n]
			}
		}' "$1"
}

report_failure() {
	echo "FAILED: $1; the whole output: $logs/$1.log" >&2
	if grep -q '^ *--- FAIL' "$logs/$1.log"; then
		failed_go_tests "$logs/$1.log" | head -80 >&2
	else
		grep -E -A12 '^panic:|ERROR|FAIL|DATA RACE' "$logs/$1.log" | head -60 >&2 || true
		tail -15 "$logs/$1.log" >&2
	fi
}

run_stage() {
	local began=$SECONDS result=0 processor TIMEFORMAT='%0U %0S'
	processor=$({ time "$0" --here "$1" >"$logs/$1.log" 2>&1 </dev/null; } 2>&1) || result=$?
	if [ "$result" = 77 ]; then
		printf '%-9s %s\n' "$1" "$(grep -o 'skipped: .*' "$logs/$1.log" | tail -1)"
		return 0
	fi
	printf '%-9s %s (%d s, %d s of processor)\n' "$1" "$(tally "$logs/$1.log")" $((SECONDS - began)) \
		$((${processor/ / + }))
	[ "$result" = 0 ] || report_failure "$1"
	return "$result"
}

# The long ones first, so that no worker is left alone at the end; the C core's beside Go's first compilation.
test_stages=(go core java e2e far tidy fault vet examples pure)
check_stages=(core go java race e2e far fuzz fault static tidy vet examples pure)

# A process of its own: where bash looks at how a function ends, all that fails inside it is passed over.
if [ "${1:-}" = --here ]; then
	"stage_$2"
	exit
fi
name="make test"
stages=("${test_stages[@]}")
at_once=4
if [ "${1:-}" = --check ]; then
	name="make check"
	stages=("${check_stages[@]}")
	at_once=3
elif [ $# = 0 ]; then
	FARLOG_TEST_SHORT=yes
else
	failed=0
	for stage in "$@"; do
		run_stage "$stage" || failed=1
	done
	exit "$failed"
fi
parts=(build ctest shm java net prometheus chrony strace pages)
[ "$name" = "make test" ] || parts+=(static s3 moto)
scripts/setup.sh "${parts[@]}"
failed=0
printf '%s\n' "${stages[@]}" | xargs -P $at_once -n 1 scripts/test.sh || failed=1
echo "$name: $([ "$failed" = 0 ] && echo passed || echo FAILED) in $((SECONDS - start)) s"
exit "$failed"
