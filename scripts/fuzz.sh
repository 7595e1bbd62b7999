#!/usr/bin/env bash
# fuzz.sh TIME -- run every Go fuzz target for TIME each; a crasher is left in its package's testdata.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-10s}
passed=0
failed=0
while IFS=: read -r path target; do
	package=./$(dirname "$path")
	if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
done < <(git ls-files -- 'cmd/*_test.go' 'pkg/*_test.go' | xargs grep -oE '^func Fuzz[A-Za-z0-9_]+' | sed 's/func //')
echo "fuzz: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
