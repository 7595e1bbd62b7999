#!/usr/bin/env bash
# docs.sh -- build the site of docs/ into build/site, with programs of its own in build/venv. A warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh docs
if ! cmp -s scripts/docs-requirements.txt build/venv/requirements.txt; then
	echo "docs: installing what scripts/docs-requirements.txt names into build/venv"
	rm -rf build/venv
	mkdir -p build
	python3 -m venv build/venv
	build/venv/bin/pip install --quiet --disable-pip-version-check -r scripts/docs-requirements.txt
	cp scripts/docs-requirements.txt build/venv/requirements.txt
fi
# Not --quiet: mkdocs counts as warnings only what it prints.
if ! NO_MKDOCS_2_WARNING=1 build/venv/bin/mkdocs build --strict >build/docs.log 2>&1; then
	grep -v '^INFO' build/docs.log >&2
	exit 1
fi
echo "docs: build/site/index.html"
