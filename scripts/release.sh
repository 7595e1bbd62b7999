#!/usr/bin/env bash
# release.sh -- make release: everything that a release of the present commit has, into build/release/dist. It is built
# twice, in trees of different paths, the second time without what Go has compiled before; a byte that differs fails.
# Then checksums, and a statement of how it was made (in-toto). Nothing is signed or published: docs/releasing.md has
# the commands.
# FARLOG_RELEASE_VERSION: a version to build as, where the commit has no tag. FARLOG_RELEASE_JAVA=no: without jars.
set -euo pipefail
cd "$(dirname "$0")/.."

die() {
	echo "release: $*" >&2
	exit 1
}

[ -z "$(git status --porcelain --untracked-files=no)" ] ||
	die "the tree has changes that are not committed: expected none, since a release is of a commit"
FARLOG_RELEASE_VERSION=${FARLOG_RELEASE_VERSION:-$(scripts/version.sh)}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export FARLOG_RELEASE_VERSION SOURCE_DATE_EPOCH
release=$PWD/build/release
commit=$(git rev-parse HEAD)
rm -rf "$release"
mkdir -p "$release"

# build FOLDER -- in a tree of the commit there.
build() {
	mkdir -p "$1"
	git archive "$commit" | tar -x -C "$1"
	{ "$1/scripts/release/build.sh" "$1/build/out" && "$1/scripts/release/images.sh" "$1/build/out"; } >"$1.log" 2>&1 ||
		{ tail -30 "$1.log" >&2 && die "build failed: $1.log"; }
}

# compare A B -- fails where one has a file that the other has not, or with other bytes.
compare() {
	diff -rq "$1" "$2" >"$release/differences" ||
		die "two builds of $commit differ: $(tr '\n' ';' <"$release/differences")"
}

echo "release: $FARLOG_RELEASE_VERSION, first build"
build "$release/first"
echo "release: second build"
GOCACHE=$release/gocache build "$release/the-second-one"
compare "$release/first/build/out/dist" "$release/the-second-one/build/out/dist"
mv "$release/first/build/out/dist" "$release/dist"
git archive --format=tar --prefix="farlog-$FARLOG_RELEASE_VERSION/" "$commit" | gzip -9n \
	>"$release/dist/farlog-$FARLOG_RELEASE_VERSION.tar.gz"
(cd "$release/dist" && sha256sum -- * >../SHA256SUMS && mv ../SHA256SUMS .)
go run ./pkg/internal/release/statement -commit "$commit" -version "$FARLOG_RELEASE_VERSION" \
	"$release/dist/SHA256SUMS" >"$release/dist/provenance.json"
echo "release: $(find "$release/dist" -type f | wc -l) files in $release/dist, the same bytes by two builds"
