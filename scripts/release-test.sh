#!/usr/bin/env bash
# release-test.sh [PART...] -- make release-test: build packages of this tree and, in fresh roots of Debian 12 and 13,
# install them over a version before, use them, upgrade, go back, remove and purge them (scripts/release/inside.sh).
# Needs root, and Debian's mirrors; roots are kept in build/release-test. PART, none: all:
#   chart                the Helm chart, rendered by Helm's code; alone it needs neither root nor packages
#   debian12, debian13   deb packages
#   rpm                  rpm packages, by Debian's rpm
#   java                 the deb of jars, with Debian's JDK; skipped without a JDK here that builds them
#   maven                jars and BOM, installed and signed, and a project that uses them; skipped likewise
#   systemd              units below a real systemd, in namespaces: ready, killed, hung, with credentials
#   mixed                a fabric of programs that differ in the version of remote connections, on loopback
#   images               OCI images, made twice, read and unpacked by skopeo and umoci, and run as the chart says
#   lintian              deb packages, read by lintian
set -euo pipefail
cd "$(dirname "$0")/.."

before=0.1.9
work=$PWD/build/release-test

say() {
	echo "release-test: $*"
}

# The chart's libraries are a module of their own.
chart() {
	(cd scripts/tools/chart && go vet ./... && go test -count=1 ./...) && say "chart: ok"
}

[ "$*" != chart ] || { chart && exit || exit 1; }
[ "$(id -u)" = 0 ] || { echo "release-test: not root: expected root, for roots of other systems" >&2 && exit 1; }
parts=("$@")
[ $# -gt 0 ] || parts=(chart debian12 debian13 rpm java maven systemd mixed images lintian)

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

# in_copy SYSTEM NAME NAMESPACES COMMAND... -- run a command in a copy of a root, in namespaces of its own by options of
# unshare. What it changes is kept for the next command of that name.
in_copy() {
	local root layers=$work/layers-$1-$2 namespaces
	root=$(root_of "$1")
	read -ra namespaces <<<"$3"
	mkdir -p "$layers"/{upper,work,root}
	unshare --mount --pid --fork --kill-child --propagation private "${namespaces[@]}" bash -euc '
		mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
		mkdir -p "$2/root/packages" "$2/root/source"
		mount --bind "$3" "$2/root/packages"
		mount --bind "$4" "$2/root/source"
		mount -o remount,bind,ro "$2/root/source"
		mount -t proc proc "$2/root/proc"
		cp -L /etc/resolv.conf "$2/root/etc/"
		source "$4/scripts/release/devices.sh" "$2/root" "$5"
		exec chroot "$2/root" "${@:6}"' in_copy "$root" "$layers" "$work/packages" "$PWD" "$3" "${@:4}"
}

# discard SYSTEM NAME -- what commands of in_copy have changed.
discard() {
	rm -rf --one-file-system "$work/layers-$1-$2"
}

# inside SYSTEM PART -- run a part of scripts/release/inside.sh in a copy of the root, which is thrown away.
inside() {
	discard "$1" "$2"
	in_copy "$1" "$2" "" /bin/bash /source/scripts/release/inside.sh "$2" "$before" >"$work/$1-$2.log" 2>&1 ||
		{ failed_at "$1" "$2" && return 1; }
	discard "$1" "$2"
	say "$1: $2: $(tail -1 "$work/$1-$2.log")"
}

failed_at() {
	tail -25 "$work/$1-$2.log" >&2
	say "$1: $2 FAILED: $work/$1-$2.log"
}

# boot SYSTEM -- install the packages and systemd, then let that be the first process of a copy of the root, with a
# network and cgroups of its own; it runs scripts/release/booted.sh and ends.
boot() {
	local log=$work/$1-systemd.log group
	discard "$1" systemd
	in_copy "$1" systemd "" /bin/bash /source/scripts/release/inside.sh units_only "$before" >"$log" 2>&1 ||
		{ failed_at "$1" systemd && return 1; }
	group=$(findmnt -no TARGET -t cgroup2 | head -1)/farlog-release-test.$$
	mkdir "$group"
	(
		echo "$BASHPID" >"$group/cgroup.procs"
		in_copy "$1" systemd "--cgroup --net --uts --ipc" /usr/bin/env -i container=farlog \
			PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=farlog-test.service
	) >>"$log" 2>&1 || {
		cat "$work/layers-$1-systemd/upper/booted.log" >>"$log" || true # systemd itself may not have come up
		failed_at "$1" systemd
		return 1
	}
	find "$group" -depth -type d -exec rmdir {} +
	say "$1: systemd: $(tail -1 "$work/layers-$1-systemd/upper/booted.log")"
	discard "$1" systemd
}

# images -- made in folders of two names, whose bytes are the same; and used.
images() {
	local log=$work/images.log made
	scripts/setup.sh images imagetest
	rm -rf --one-file-system "$work"/images-*
	for made in first the-second-one; do
		mkdir -p "$work/images-$made/dist"
		cp "$work/packages/now"/farlog*.deb "$work/images-$made/dist"
		scripts/release/images.sh "$work/images-$made" >"$log" 2>&1 || { tail -5 "$log" >&2 && return 1; }
	done
	diff -rq "$work"/images-{first,the-second-one}/dist || { say "images: two builds differ" >&2 && return 1; }
	mkdir "$work/images-used"
	unshare --mount --net --pid --ipc --fork --kill-child --mount-proc bash scripts/release/imaged.sh \
		"$work/images-first/dist" "$work/images-used" "$work/packages/versitygw" >"$log" 2>&1 ||
		{ tail -25 "$log" >&2 && say "images FAILED: $log" >&2 && return 1; }
	say "images: $(tail -1 "$log")"
}

maven() {
	local log=$work/maven.log
	rm -rf --one-file-system "$work/maven"
	mkdir -p "$work/maven"
	scripts/release/maven.sh "$work/maven" >"$log" 2>&1 ||
		{ tail -25 "$log" >&2 && say "maven FAILED: $log" >&2 && return 1; }
	say "maven: $(tail -1 "$log")"
}

# mixed -- with programs that are built as those of another version of remote connections: their C code finds a header
# with another number first.
mixed() {
	local log=$work/mixed.log version=$work/mixed/include/wire/wire.h
	rm -rf --one-file-system "$work/mixed"
	mkdir -p "$work/mixed"/{include/wire,bin,run}
	sed 's/^#define FAR_VERSION 2u$/#define FAR_VERSION 3u/' rdma/src/wire/wire.h >"$version"
	! cmp -s rdma/src/wire/wire.h "$version" ||
		{ say "mixed: rdma/src/wire/wire.h: expected FAR_VERSION 2u; change release/mixed.sh too" && return 1; }
	CGO_CFLAGS="-O2 -I$work/mixed/include" go build -buildvcs=false -o "$work/mixed/bin" ./cmd/farlog ./cmd/farlogd
	unshare --mount --net --pid --ipc --fork --kill-child --mount-proc bash scripts/release/mixed.sh \
		"$work/build/stage/bin" "$work/mixed/bin" "$work/mixed/run" >"$log" 2>&1 ||
		{ tail -25 "$log" >&2 && say "mixed FAILED: $log" >&2 && return 1; }
	say "mixed: $(tail -1 "$log")"
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
	chart) chart || failed=1 ;;
	debian12 | debian13) inside "$part" deb || failed=1 ;;
	java) [ "$jars" = yes ] && { inside debian13 java || failed=1; } || say "java: skipped: no JDK 22 or later" ;;
	maven) [ "$jars" = yes ] && { maven || failed=1; } || say "maven: skipped: no JDK 22 or later" ;;
	rpm | lintian) inside debian13 "$part" || failed=1 ;;
	mixed) mixed || failed=1 ;;
	images) images || failed=1 ;;
	systemd) boot debian12 || failed=1; boot debian13 || failed=1 ;;
	*) say "unknown part \"$part\": expected one of those above" >&2 && exit 2 ;;
	esac
done
exit "$failed"
