#!/usr/bin/env bash
# format.sh [--check] [LANGUAGE...] -- lay out sources as their formatters do; with --check only name the files that
# differ.
#   c      C and C++, by clang-format and .clang-format
#   go     by golines with gofumpt
#   java   java/ and examples/, by Maven and java/formatter.xml
# Without a LANGUAGE all of them. Exit code 1: --check has found some, or a formatter has failed. A language whose
# formatter is not installed is skipped with a message; the exit code is 77 when all were skipped. pkg/internal/tidy
# checks comments, texts and lengths. Versions are pinned here, in scripts/tools/go.mod and in java/pom.xml, since
# versions differ in their layout.
set -euo pipefail
cd "$(dirname "$0")/.."

languages=(c go java)
is_check=no
clang_format_version=23.1.5

# unformatted LANGUAGE -- what comes in are the names of files that are not laid out; fails when there are any.
unformatted() {
	! sed "s/\$/: not as its formatter lays it out; run scripts\/format.sh $1/" | grep .
}

# fetch_clang_format -- into build/format.
fetch_clang_format() {
	! build/format/bin/clang-format --version 2>/dev/null | grep -qF "$clang_format_version" || return 0
	scripts/setup.sh format
	python3 -m venv build/format
	build/format/bin/pip --quiet --disable-pip-version-check install "clang-format==$clang_format_version"
}

format_c() {
	local files
	fetch_clang_format || return 1
	mapfile -d '' -t files < <(git ls-files -z '*.c' '*.h' '*.hpp' '*.cpp')
	if [ "$is_check" = no ]; then
		build/format/bin/clang-format -i "${files[@]}"
	else
		build/format/bin/clang-format --dry-run "${files[@]}" 2>&1 |
			sed -n 's/^\([^:]*\):.*\[-Wclang-format-violations\]$/\1/p' | sort -u | unformatted c
	fi
}

format_go() {
	local golines gofumpt
	golines=$(go tool -modfile=scripts/tools/go.mod -n golines) || return 1
	gofumpt=$(go tool -modfile=scripts/tools/go.mod -n gofumpt) || return 1
	local options=(--max-len=120 --tab-len=4 --no-reformat-tags "--base-formatter=$gofumpt")
	if [ "$is_check" = no ]; then
		git ls-files -z '*.go' ':!*.pb.go' ':!*.pb.gw.go' |
			xargs -0 -n 100 -P "$(nproc)" "$golines" "${options[@]}" --write-output
	else
		git ls-files -z '*.go' ':!*.pb.go' ':!*.pb.gw.go' |
			xargs -0 -n 100 -P "$(nproc)" "$golines" "${options[@]}" --list-files | unformatted go
	fi
}

# format_java -- by Eclipse's formatter as a plugin of Maven, which fetches it.
format_java() {
	local goal=format home
	[ "$is_check" = no ] || goal=validate
	home=$(scripts/java.sh find) || { echo "format: java: skipped: no JDK; see scripts/java.sh" >&2 && return 77; }
	command -v mvn >/dev/null || { echo "format: java: skipped: no mvn; install maven" >&2 && return 77; }
	JAVA_HOME=$home mvn -B -q -N -f java/pom.xml "net.revelc.code.formatter:formatter-maven-plugin:$goal" || {
		echo "format: java: not in the format of java/formatter.xml; run scripts/format.sh java" >&2
		return 1
	}
}

if [ "${1:-}" = --check ]; then
	is_check=yes
	shift
fi
[ $# -gt 0 ] || set -- "${languages[@]}"
failed=0
skipped=0
for language in "$@"; do
	case " ${languages[*]} " in
	*" $language "*) ;;
	*) echo "format: unknown language \"$language\"; expected some of: ${languages[*]}" >&2 && exit 2 ;;
	esac
	result=0
	"format_$language" || result=$?
	case "$result" in
	0) ;;
	77) skipped=$((skipped + 1)) ;;
	*) failed=1 ;;
	esac
done
[ "$failed" = 0 ] || exit 1
[ "$skipped" -lt $# ] || exit 77
