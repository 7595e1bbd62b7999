#!/usr/bin/env bash
# sbom-diff.sh [BASE] -- the modules that a change brings into the programs, or takes out of them, against BASE
# (origin/main, else main): a line each, + or -, with the sum of the module. A new version is a line of both. For who
# reviews a pull request; prints nothing when the programs are made of the same. Exit code 1: it could not be found out.
set -euo pipefail
cd "$(dirname "$0")/.."

base=${1:-}
for branch in origin/main main; do
	[ -n "$base" ] || base=$(git rev-parse --verify --quiet "$branch") || true
done
[ -n "$base" ] || {
	echo "sbom-diff: neither origin/main nor main is here: name the commit to compare with" >&2
	exit 1
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# modules FOLDER -- of the programs of the tree there, as make release lists them: each with its sum, what stands in
# place of a module, and the standard library.
modules() {
	local format='{{with .Module}}{{if .Replace}}{{.Path}} => {{.Replace.Path}} {{or .Replace.Version "-"}}
		{{- else if .Version}}{{.Path}} {{.Version}}{{end}}{{end}}'
	(
		cd "$1"
		echo "stdlib $(go env GOVERSION)"
		go list -deps -f "$format" ./cmd/... | sort -u | awk 'NF' | while read -r line; do
			echo "$line $(awk -v module="${line##*=> }" '$1 " " $2 == module {print $3}' go.sum)"
		done
	)
}

mkdir "$scratch/base"
git archive "$base" | tar -x -C "$scratch/base"
modules "$scratch/base" >"$scratch/before"
modules . >"$scratch/now"
diff --old-line-format='- %L' --new-line-format='+ %L' --unchanged-line-format='' "$scratch/before" "$scratch/now" ||
	[ $? = 1 ]
