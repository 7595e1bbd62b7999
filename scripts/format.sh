#!/usr/bin/env bash
# format.sh -- lay out the code as its formatters do; comments, texts and lengths are pkg/internal/tidy's.
#   scripts/format.sh           format what git knows of
#   scripts/format.sh --check   change nothing; name the files that format.sh would change, and exit with 1 if there are
#                               any
# C and C++: clang-format (.clang-format). Go: golines with gofumpt. Both are installed below build/, with versions
# pinned here and in scripts/tools/go.mod, because another version lays out otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh build format

clang_format_version=23.1.5
check=${1:-}
case "$check" in
"" | --check) ;;
*) echo "format.sh: unknown argument \"$check\"; expected none, or --check" >&2 && exit 2 ;;
esac

clang_format=build/format/bin/clang-format
if ! "$clang_format" --version 2>/dev/null | grep -qF "$clang_format_version"; then
	python3 -m venv build/format
	build/format/bin/pip --quiet --disable-pip-version-check install "clang-format==$clang_format_version"
fi

unformatted=0

# report FILES -- one a line; they are named when there are any.
report() {
	[ -n "$1" ] || return 0
	unformatted=1
	sed 's/$/: not as its formatter lays it out; run scripts\/format.sh/' <<<"$1"
}

format_c() {
	if [ -z "$check" ]; then
		git ls-files -z '*.c' '*.h' '*.hpp' '*.cpp' | xargs -0 "$clang_format" -i
	else
		report "$(git ls-files -z '*.c' '*.h' '*.hpp' '*.cpp' |
			xargs -0 "$clang_format" --dry-run 2>&1 | sed -n 's/^\([^:]*\):.*\[-Wclang-format-violations\]$/\1/p' |
				sort -u)"
	fi
}

format_go() {
	local golines="go tool -modfile=scripts/tools/go.mod golines" gofumpt
	gofumpt=$(go tool -modfile=scripts/tools/go.mod -n gofumpt)
	golines=$(go tool -modfile=scripts/tools/go.mod -n golines)
	local action=-w
	[ -z "$check" ] || action=--list-files
	report "$(git ls-files -z '*.go' ':!*.pb.go' ':!*.pb.gw.go' |
		xargs -0 -n 100 -P "$(nproc)" "$golines" --max-len=120 --tab-len=4 --no-reformat-tags \
			--base-formatter="$gofumpt" "$action")"
}

format_c
format_go
exit "$unformatted"
