#!/usr/bin/env bash
# programs.sh ROOT WORK -- build what runs in the guests from the present source, in ROOT (a tree that testbed/root.sh
# made), so that it is linked with what the guests have. WORK keeps compiled parts between runs. Makes WORK/programs (a
# tree) and WORK/programs.img. FARLOG_TESTBED_BENCH: with what verbs-bench, blocks-bench or both measure by ("verbs
# blocks"). Without what a debugger needs: that would be most of what is compiled, linked and copied. Needs root, for
# the mounts of a chroot; they are in a mount namespace of their own and end with it.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$(cd "$1" && pwd)
[ -d "$root/usr" ] || { echo "programs.sh: $1: not a root; expected the folder root/ that testbed/root.sh made" >&2; \
	exit 2; }
mkdir -p "$2"/{gocache,programs,home}
work=$(cd "$2" && pwd)

# build_inside -- in the root: /src is the source, read only; /work, /goroot and /gomod are what their names say.
build_inside() {
	cat <<-'END'
		set -eu
		export HOME=/work/home PATH=/goroot/bin:/usr/sbin:/usr/bin:/sbin:/bin
		export GOROOT=/goroot GOMODCACHE=/gomod GOCACHE=/work/gocache
		export GOFLAGS=-buildvcs=false GOPROXY=off GOTOOLCHAIN=local CGO_CFLAGS=-O2
		[ -f /work/rdma/build.ninja ] ||
			meson setup /work/rdma /src/rdma -Dtests=true -Ddebug=false >/work/meson.log 2>&1 ||
			{ tail -20 /work/meson.log; exit 1; }
		make() {
			ninja -C /work/rdma "$@" >/work/ninja.log 2>&1 ||
				{ grep -vE '^\[[0-9]+/[0-9]+\] (Compiling|Linking)' /work/ninja.log | tail -40; exit 1; }
		}
		make test/conformance test/verbs
		own="gcc -std=gnu11 -D_GNU_SOURCE -O2 -I/src/rdma/include -I/src/rdma/src -I/src/rdma/test"
		case " $FARLOG_TESTBED_BENCH " in *" verbs "*)
			make libfarlog.a
			$own /src/rdma/bench/verbs/*.c /work/rdma/libfarlog.a -lpthread -libverbs -lrdmacm \
				-o /work/programs/bin/bench_verbs
			$own -DBENCH_COUNTS /src/rdma/bench/verbs/*.c /src/rdma/test/far/verbs_counts.c \
				-Wl,--wrap=verbs_queue_open /work/rdma/libfarlog.a -lpthread -libverbs -lrdmacm \
				-o /work/programs/bin/bench_verbs_counts ;;
		esac
		case " $FARLOG_TESTBED_BENCH " in *" blocks "*)
			make libfarlog.a
			$own /src/rdma/bench/*.c /work/rdma/libfarlog.a -lpthread -o /work/programs/bin/bench ;;
		esac
		$own -Wall -Wextra -Werror /src/testbed/bare/bare.c -libverbs -lrdmacm -o /work/programs/bin/bare
		cd /src
		CGO_ENABLED=1 go build -ldflags='-s -w' -o /work/programs/bin/ ./cmd/farlog ./cmd/farlogd ./testbed/far
		CGO_ENABLED=1 go build -tags farlog_fault -ldflags='-s -w' -o /work/programs/bin/far-fault ./testbed/far
		CGO_ENABLED=0 go build -ldflags='-s -w' -o /work/programs/bin/ ./testbed/agent
		CGO_ENABLED=0 go test -c -ldflags='-s -w' -o /work/programs/bin/nvmet.test ./pkg/nvmet
		CGO_ENABLED=1 go test -c -ldflags='-s -w' -o /work/programs/bin/drain.test ./pkg/drain
		rm -rf /work/programs/tls
		/work/programs/bin/farlog ca init /work/programs/tls >/dev/null
		install /work/rdma/test/conformance /work/rdma/test/verbs /work/programs/bin/
	END
}

mounts() {
	local place
	mkdir -p "$root"/{src,work,goroot,gomod}
	for place in "$PWD:src" "$(go env GOROOT):goroot" "$(go env GOMODCACHE):gomod"; do
		mount --bind "${place%%:*}" "$root/${place#*:}"
		mount -o remount,bind,ro "$root/${place#*:}"
	done
	mount --bind "$work" "$root/work"
	mount --bind /dev "$root/dev"
	mount -t proc proc "$root/proc"
}

if [ "${FARLOG_TESTBED_INSIDE:-}" != yes ]; then
	FARLOG_TESTBED_INSIDE=yes exec unshare --mount --propagation private "$PWD/testbed/programs.sh" "$root" "$work"
fi
mounts
mkdir -p "$work/programs/bin"
export FARLOG_TESTBED_BENCH=${FARLOG_TESTBED_BENCH:-}
build_inside | chroot "$root" /bin/sh
cp testbed/guest/init "$work/programs/init"
cp testbed/guest/bin/* "$work/programs/bin/"
rm -f "$work/programs.img"
mkfs.ext4 -q -d "$work/programs" -O ^has_journal "$work/programs.img" \
	"$(($(du -sm "$work/programs" | cut -f1) * 5 / 4 + 32))M" >/dev/null
