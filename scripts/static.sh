#!/usr/bin/env bash
# static.sh -- what is found without running anything. C: clang-tidy over the core by .clang-tidy, whose exceptions each
# have their reason there, and gcc -fanalyzer, whose findings are waved through by a comment "analyzer: REASON" on their
# line or the one before. Go: what go vet, staticcheck, errcheck and gosec find (scripts/tools/static). The sums of all
# modules; known vulnerabilities, where FARLOG_VULNDB names a data base (a URL, such as file:///path, of the form of
# https://vuln.go.dev). What was clean is looked at again when it, a header, the rules or the tool has changed. Each
# tool is shown a fault as well, which it has to find.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh static
passed=0
failed=0
skipped=0
stamps=build/static
faults=scripts/tools/static/testdata/faults.c
mkdir -p "$stamps"

verdict() { # NAME CODE
	if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED: $1"; fi
}

# state TOOL... -- of all that a file's findings depend on but the file itself.
state() {
	"$@" --version | sha256sum
	find rdma/src rdma/include -name '*.h' -print0 | sort -z | xargs -0 sha256sum .clang-tidy scripts/static.sh
}

# once CHECK FILE STATE -- runs the check of a file, unless it was clean; silent when it is.
once() {
	local stamp
	stamp=$stamps/$1-$(printf '%s %s' "$3" "$(sha256sum "$2")" | sha256sum | cut -c1-32)
	[ ! -e "$stamp" ] || return 0
	"$1" "$2" || return 1
	touch "$stamp"
}

tidy() {
	local said
	said=$(clang-tidy --quiet "$1" -- $flags 2>&1) || { echo "$said" && return 1; }
}

# analyze FILE -- without optimization: gcc's analyzer looks at the code before that.
analyze() {
	local said found="" place line
	said=$($gcc $flags -O0 -fanalyzer -fdiagnostics-plain-output -c -o /dev/null "$1" 2>&1) ||
		{ echo "$said" && return 1; }
	while IFS=: read -r place line _; do
		sed -n "$((line > 1 ? line - 1 : 1)),${line}p" "$place" | grep -q 'analyzer: ' || found=yes
	done < <(grep -E ' warning: .*\[-Wanalyzer' <<<"$said")
	[ -z "$found" ] || { echo "$said" && return 1; }
}

# find_gcc -- version 12: others find other things, and not these.
find_gcc() {
	local candidate
	for candidate in gcc-12 gcc; do
		if [ "$("$candidate" -dumpversion 2>/dev/null | cut -d. -f1)" = 12 ]; then echo "$candidate" && return; fi
	done
	return 1
}

# all_files CHECK STATE
all_files() {
	local code=0
	find rdma/src -name '*.c' -print0 | sort -z |
		xargs -0 -P "$(nproc)" -I FILE bash -c 'once "$1" "$2" "$3"' once "$1" FILE "$2" || code=$?
	verdict "$1" "$code"
	code=0
	! "$1" "$faults" >/dev/null || code=1
	verdict "$1 finds the fault in $faults" "$code"
}

flags="-std=gnu11 -D_GNU_SOURCE -Irdma/include -Irdma/src"
gcc=$(find_gcc) || gcc=""
export stamps flags gcc
export -f once tidy analyze
all_files tidy "$(state clang-tidy | sha256sum | cut -c1-32)"
if [ -n "$gcc" ]; then
	all_files analyze "$(state "$gcc" | sha256sum | cut -c1-32)"
else
	echo "gcc -fanalyzer: skipped: gcc 12 is not here"
	skipped=$((skipped + 1))
fi

code=0
GOFLAGS="${GOFLAGS:-} -buildvcs=false" go build -C scripts/tools/static -o "$PWD/$stamps/govet" . &&
	go vet -vettool="$PWD/$stamps/govet" ./... || code=$?
verdict "staticcheck, errcheck and gosec" "$code"
code=0
go test -C scripts/tools/static ./... || code=$?
verdict "staticcheck, errcheck and gosec find their faults" "$code"
code=0
go mod verify || code=$?
verdict "go mod verify" "$code"
if [ -n "${FARLOG_VULNDB:-}" ]; then
	code=0
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 -db "$FARLOG_VULNDB" ./... || code=$?
	verdict "govulncheck" "$code"
else
	echo "govulncheck: skipped: no data base; FARLOG_VULNDB names one"
	skipped=$((skipped + 1))
fi
echo "static: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
