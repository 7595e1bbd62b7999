#!/usr/bin/env bash
# static.sh -- what is found without running anything: clang-tidy over the C core by .clang-tidy, whose exceptions each
# have their reason there; the sums of all modules; known vulnerabilities, where FARLOG_VULNDB names a data base (a URL,
# such as file:///path, of the form of https://vuln.go.dev). A file of C that was clean is looked at again when it, a
# header, the rules or clang-tidy has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh static
passed=0
failed=0
stamps=build/static
mkdir -p "$stamps"

verdict() { # NAME CODE
	if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED: $1"; fi
}

# state -- of all that a file's findings depend on but the file itself.
state() {
	clang-tidy --version | sha256sum
	find rdma/src rdma/include -name '*.h' -print0 | sort -z | xargs -0 sha256sum .clang-tidy
}

# tidy FILE STATE -- silent when it is clean.
tidy() {
	local stamp
	stamp=$stamps/$(printf '%s %s' "$2" "$(sha256sum "$1")" | sha256sum | cut -c1-32)
	[ ! -e "$stamp" ] || return 0
	clang-tidy --quiet "$1" -- -std=gnu11 -D_GNU_SOURCE -Irdma/include -Irdma/src 2>"$stamp.log" || {
		cat "$stamp.log"
		return 1
	}
	rm -f "$stamp.log"
	touch "$stamp"
}

export stamps
export -f tidy
common=$(state | sha256sum | cut -c1-32)
code=0
find rdma/src -name '*.c' -print0 | sort -z |
	xargs -0 -P "$(nproc)" -I FILE bash -c 'tidy "$1" "$2"' tidy FILE "$common" || code=$?
verdict "clang-tidy" "$code"
code=0
go mod verify || code=$?
verdict "go mod verify" "$code"
if [ -n "${FARLOG_VULNDB:-}" ]; then
	code=0
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 -db "$FARLOG_VULNDB" ./... || code=$?
	verdict "govulncheck" "$code"
	skipped=0
else
	echo "govulncheck: skipped: no data base; FARLOG_VULNDB names one"
	skipped=1
fi
echo "static: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
