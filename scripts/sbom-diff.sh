#!/usr/bin/env bash
# sbom-diff.sh [BASE] -- the modules that a change brings into the programs, or takes out of them, against BASE
# (origin/main, else main): a line each, + or -, with the sum of the module. A new version is a line of both. For who
# reviews a pull request; prints nothing when the programs are made of the same.
set -euo pipefail
cd "$(dirname "$0")/.."

base=${1:-$(git rev-parse --verify --quiet origin/main || git rev-parse --verify main)}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# modules FOLDER -- of the programs of the tree there, as make release lists them.
modules() {
	(cd "$1" && go list -deps -f '{{with .Module}}{{if .Version}}{{.Path}} {{.Version}}{{end}}{{end}}' ./cmd/... |
		sort -u | grep . | while read -r path version; do
		echo "$path $version $(awk -v p="$path" -v v="$version" '$1 == p && $2 == v {print $3}' go.sum)"
	done)
}

mkdir "$scratch/base"
git archive "$base" | tar -x -C "$scratch/base"
modules "$scratch/base" >"$scratch/before"
modules . >"$scratch/now"
diff --old-line-format='- %L' --new-line-format='+ %L' --unchanged-line-format='' "$scratch/before" "$scratch/now" ||
	[ $? = 1 ]
