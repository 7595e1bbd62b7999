#!/usr/bin/env bash
# fuzz.sh TIME -- run every Go fuzz target for TIME each; a crasher is left in its package's testdata.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-10s}
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz PACKAGE TARGET -- once more when Go ended by its own clock in the middle of an input, which it tells as a failure
# without one ("context deadline exceeded"): it does so when the disk holds a worker up. A crasher is written, and is
# named. Making the first input of interest smaller would take a minute, which may be all there is.
fuzz() {
	local try
	for try in 1 2; do
		go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 1s "$1" 2>&1 | tee "$log" && return 0
		if grep -q 'Failing input written' "$log" || ! grep -q 'context deadline exceeded' "$log"; then
			return 1
		fi
	done
	return 1
}

while IFS=: read -r path target; do
	package=./$(dirname "$path")
	if fuzz "$package" "$target"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
done < <(git ls-files -- 'cmd/*_test.go' 'pkg/*_test.go' | xargs grep -oE '^func Fuzz[A-Za-z0-9_]+' | sed 's/func //')
echo "fuzz: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
