#!/usr/bin/env bash
# version.sh -- print the version of this tree, by semantic versioning: X.Y.Z where its commit has the tag vX.Y.Z and
# nothing was changed; X.Y.Z-dev.N+gCOMMIT behind a tag, with N commits since. X.Y.Z is that of farlog.h, and a tag has
# to agree with it; where the last tag has it already, the next patch. Without git: X.Y.Z-dev.
set -euo pipefail
cd "$(dirname "$0")/.."

header=$(sed -n 's/^#define FARLOG_VERSION "\([0-9]*\.[0-9]*\.[0-9]*\)"$/\1/p' rdma/include/farlog/farlog.h)
[ -n "$header" ] || { echo "version: rdma/include/farlog/farlog.h: expected a FARLOG_VERSION \"X.Y.Z\"" >&2; exit 1; }

# Only a repository of this folder itself: an unpacked archive may lie in somebody else's.
if [ ! -e .git ] || ! commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
	echo "$header-dev"
	exit
fi
dirty=""
[ -z "$(git status --porcelain --untracked-files=no)" ] || dirty=.dirty
tag=$(git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null || true)
count=$(git rev-list --count "${tag:+$tag..}HEAD")
tagged=${tag#v}
if [ -n "$tag" ] && [ "$count" = 0 ] && [ -z "$dirty" ]; then
	[ "$tagged" = "$header" ] || {
		echo "version: tag $tag: expected v$header, the version of rdma/include/farlog/farlog.h" >&2
		exit 1
	}
	echo "$header"
	exit
fi
[ "$tagged" != "$header" ] || header=${header%.*}.$((${header##*.} + 1))
echo "$header-dev.$count+g$commit$dirty"
