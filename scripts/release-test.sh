#!/usr/bin/env bash
# release-test.sh [PART...] -- make release-test: build packages of this tree and, in fresh roots of Debian 12 and 13,
# install them over a version before, use them, upgrade, go back, remove and purge them (scripts/release/inside.sh).
# Needs root, and Debian's mirrors; roots are kept in build/release-test. PART, none: all:
#   debian12, debian13   deb packages
#   rpm                  rpm packages, by Debian's rpm
#   java                 the deb of jars, with Debian's JDK; skipped without a JDK here that builds them
#   lintian              deb packages, read by lintian
set -euo pipefail
cd "$(dirname "$0")/.."

before=0.1.9
work=$PWD/build/release-test
[ "$(id -u)" = 0 ] || { echo "release-test: not root: expected root, for roots of other systems" >&2 && exit 1; }
parts=("$@")
[ $# -gt 0 ] || parts=(debian12 debian13 rpm java lintian)

say() {
	echo "release-test: $*"
}

# root_of SYSTEM -- print its folder; made once, by mmdebstrap. What the packages need is installed by apt in the test.
root_of() {
	local suite=trixie include=gcc,libc6-dev,pkg-config,lintian,rpm folder=$work/root-$1
	[ "$1" = debian13 ] || { suite=bookworm && include=gcc,libc6-dev,pkg-config; }
	if [ ! -e "$folder/usr" ]; then
		rm -rf --one-file-system "$folder.new"
		mmdebstrap --quiet --mode=root --variant=apt --skip=cleanup/apt/lists --include="$include" \
			--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt=force-unsafe-io \
			"$suite" "$folder.new" >"$folder.log" 2>&1 ||
			{ tail -5 "$folder.log" >&2 && say "$1: no root was made: $folder.log" >&2 && exit 1; }
		mv "$folder.new" "$folder"
	fi
	echo "$folder"
}

# inside SYSTEM PART -- run a part of scripts/release/inside.sh in a copy of the root, which is thrown away.
inside() {
	local root layers=$work/layers-$1-$2
	root=$(root_of "$1")
	rm -rf --one-file-system "$layers"
	mkdir -p "$layers"/{upper,work,root}
	unshare --mount --pid --fork --kill-child --propagation private bash -euc '
		mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
		mkdir -p "$2/root/packages" "$2/root/source"
		mount --bind "$3" "$2/root/packages"
		mount --bind "$4" "$2/root/source"
		mount -o remount,bind,ro "$2/root/source"
		mount --bind /dev "$2/root/dev"
		mount -t proc proc "$2/root/proc"
		cp -L /etc/resolv.conf "$2/root/etc/"
		chroot "$2/root" /bin/bash /source/scripts/release/inside.sh "$5" "$6"' \
		inside "$root" "$layers" "$work/packages" "$PWD" "$2" "$before" >"$work/$1-$2.log" 2>&1 || {
		tail -25 "$work/$1-$2.log" >&2
		say "$1: $2 FAILED: $work/$1-$2.log"
		return 1
	}
	rm -rf --one-file-system "$layers"
	say "$1: $2: $(tail -1 "$work/$1-$2.log")"
}

scripts/setup.sh build ctest vm
mkdir -p "$work/packages"
jars=yes
scripts/java.sh find >/dev/null || jars=no
for version in "$before" now; do
	rm -rf "$work/packages/$version"
	FARLOG_RELEASE_JAVA=$([ "$version" = now ] && echo "$jars" || echo no) \
		FARLOG_RELEASE_VERSION=$([ "$version" = now ] || echo "$version") \
		scripts/release/build.sh "$work/build" >"$work/build.log" 2>&1 || { tail -20 "$work/build.log" >&2 && exit 1; }
	cp -R "$work/build/dist" "$work/packages/$version"
done
# The storage that farlog archive is tried with.
cp "$(GOFLAGS=-buildvcs=false go tool -modfile=scripts/tools/s3/go.mod -n versitygw)" "$work/packages/versitygw"
failed=0
for part in "${parts[@]}"; do
	case "$part" in
	debian12 | debian13) inside "$part" deb || failed=1 ;;
	java) [ "$jars" = yes ] && { inside debian13 java || failed=1; } || say "java: skipped: no JDK 22 or later" ;;
	rpm | lintian) inside debian13 "$part" || failed=1 ;;
	*) say "unknown part \"$part\": expected debian12, debian13, rpm, java or lintian" >&2 && exit 2 ;;
	esac
done
exit "$failed"
