#!/usr/bin/env bash
# setup.sh PART... -- make sure that what the parts need is there; install by apt-get what is missing, quietly.
#   build   Go, a C compiler and the headers of libfabric, libibverbs, librdmacm, liburing and libblkid
#   ctest   what rdma/test needs: meson, ninja, g++, cmocka, spdlog, OpenSSL, clang with its sanitizer and fuzzer
#           runtimes
#   shm     /dev/shm, where the counters are and the tests' rings in memory
#   java    a JDK of 22 or later and Maven, where the distribution has them; where it has none nothing, the tests say
#           that they are skipped
#   net     what the tests with network namespaces need: ip and nft; without root they are skipped, and nothing is
#           installed
#   vm      what testbed/ needs: QEMU, and mmdebstrap for the guests' root
#   images  mmdebstrap, by which scripts/release/images.sh gets Debian's packages
#   imagetest  skopeo and umoci, which read and unpack the images, and what their test uses: jq and curl
#   prometheus  prometheus and promtool, of which the tests of metrics start their own: unpacked into build/prometheus,
#               no service is installed
#   chrony  chronyd and chronyc, which the test of the clock's offset asks: unpacked into build/chrony
#   model   spin, which checks the protocol of members
#   strace  strace, by which tests see the system calls of a child and let the kernel refuse one
#   static  clang-tidy, for scripts/static.sh
#   proto   what pkg/api/v1/generate.sh needs: Python with venv
#   format  what scripts/format.sh needs: Python with venv, which fetches clang-format
#   docs    what scripts/docs.sh needs: Python with venv, which fetches mkdocs
#   hsm     SoftHSM and OpenSC, by which tests sign over PKCS#11
#   s3      versitygw, a real S3 server for tests: built once, Go's cache keeps it
#   moto    moto, an S3 server that does not keep what it locks, which farlog archive probe must refuse: into build/moto
#   pages   what the commands of docs/tutorials and docs/how-to use: ip, curl, openssl, and those of hsm
set -euo pipefail
cd "$(dirname "$0")/.."

die() {
	echo "setup: $*" >&2
	exit 1
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

missing=()

# need PROGRAM PACKAGE... -- the packages are wanted when the program is not there.
need() {
	command -v "$1" >/dev/null || missing+=("${@:2}")
}

# need_file GLOB PACKAGE
need_file() {
	compgen -G "$1" >/dev/null || missing+=("$2")
}

# is_older VERSION VERSION
is_older() {
	[ "$1" != "$2" ] && [ "$(printf '%s\n' "$@" | sort -V | head -1)" = "$1" ]
}

check_go() {
	local wanted found
	command -v go >/dev/null || die "go: not found; farlog needs Go 1.21 or later in PATH (it fetches the version in" \
		"go.mod itself)"
	wanted=$(awk '$1 == "go" {print $2}' go.mod)
	found=$(cd / && go env GOVERSION)
	case "$found" in
	go1.[0-9] | go1.[0-9].* | go1.1[0-9] | go1.1[0-9].* | go1.20 | go1.20.*)
		die "go: found $found, which cannot fetch newer versions of itself; expected Go 1.21 or later, best $wanted" ;;
	esac
	[ -x bin/farlogd ] || ! is_older "$found" "go$wanted" || echo "setup: $found fetches go$wanted for itself"
	! is_older "$(go env GOVERSION 2>/dev/null || echo go0)" "go$wanted" ||
		die "go: found $found, expected $wanted, and it was not fetched (GOTOOLCHAIN is" \
			"\"$(cd / && go env GOTOOLCHAIN)\"); check the network and GOPROXY, and that GOTOOLCHAIN is auto"
}

check_cc() {
	need cc gcc libc6-dev
	need_file '/usr/include/stdio.h' libc6-dev
	need_file '/usr/include/linux/futex.h' linux-libc-dev
	# Headers of what carries far regions; the libraries themselves are loaded when a far ring is opened.
	need_file '/usr/include/rdma/fabric.h' libfabric-dev
	need_file '/usr/include/infiniband/verbs.h' libibverbs-dev
	need_file '/usr/include/rdma/rdma_cma.h' librdmacm-dev
	need_file '/usr/include/liburing.h' liburing-dev
	need_file '/usr/include/blkid/blkid.h' libblkid-dev
}

check_shm() {
	[ -d /dev/shm ] && [ -w /dev/shm ] ||
		die "/dev/shm: not there or not writable; the counters of writers live in it; mount it: mount -t tmpfs -o" \
			"mode=1777 tmpfs /dev/shm"
}

check_ctest() {
	need meson meson
	need ninja ninja-build
	need g++ g++
	need pkg-config pkg-config
	check_clang
	need_file '/usr/include/cmocka.h' libcmocka-dev
	need_file '/usr/include/spdlog/spdlog.h' libspdlog-dev
	need openssl openssl # and with it libcrypto, which encrypts records
	need_file '/usr/lib/gcc/*/*/libasan.so' gcc
}

# check_clang -- the first clang that rdma/test/run.sh would take must have its runtimes, a package of its own with
# clang's major version in its name. Where there is no clang at all, the distribution's.
check_clang() {
	local candidate version
	for candidate in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
		command -v "$candidate" >/dev/null || continue
		version=$("$candidate" -dumpversion)
		compgen -G "$("$candidate" -print-resource-dir)/lib/*/libclang_rt.fuzzer*" >/dev/null ||
			missing+=("libclang-rt-${version%%.*}-dev")
		return 0
	done
	# no lists
	version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -1) || true
	missing+=(clang "libclang-rt-${version:-14}-dev")
}

# check_java -- Debian 12 has no JDK that is new enough: then none is installed, and scripts/java.sh says what to do.
check_java() {
	local package=""
	scripts/java.sh find >/dev/null 2>&1 || {
		package=$(apt-cache search --names-only '^openjdk-[0-9]+-jdk-headless$' 2>/dev/null | awk '{print $1}' |
			sort -V | tail -1) || true
		is_older "${package//[^0-9]/}" 22 && return 0
		missing+=("$package")
	}
	need mvn maven
	need meson meson
	need ninja ninja-build
}

check_net() {
	[ "$(id -u)" = 0 ] || return 0
	need ip iproute2
	need nft nftables
}

# unpack PACKAGE -- Debian's package would start a service on this host: its programs are all that is wanted, in
# build/PACKAGE.
unpack() {
	local package=$1 folder
	command -v apt-get >/dev/null || die "$package: not found, and there is no apt-get here; put its programs into" \
		"PATH yourself"
	folder=$(mktemp -d)
	(cd "$folder" && { apt-get download "$package" || { as_root apt-get update -qq &&
		apt-get download "$package"; }; }) >"$folder/log" 2>&1 </dev/null ||
		die "apt-get download $package: $(grep -m1 '^E:' "$folder/log" || tail -1 "$folder/log")"
	mkdir -p "build/$package.part"
	dpkg-deb -x "$folder/$package"_*.deb "build/$package.part"
	rm -rf "build/$package" "$folder"
	mv "build/$package.part" "build/$package"
}

check_prometheus() {
	if command -v prometheus >/dev/null && command -v promtool >/dev/null ||
		[ -x build/prometheus/usr/bin/promtool ]; then return 0; fi
	unpack prometheus
}

check_chrony() {
	if command -v chronyd >/dev/null && command -v chronyc >/dev/null ||
		[ -x build/chrony/usr/sbin/chronyd ]; then return 0; fi
	unpack chrony
}

check_s3() {
	GOFLAGS=-buildvcs=false go tool -modfile=scripts/tools/s3/go.mod -n versitygw >/dev/null ||
		die "versitygw: not built; check the network and GOPROXY"
}

check_moto() {
	[ ! -x build/moto/bin/moto_server ] || return 0
	python3 -m venv build/moto
	build/moto/bin/pip --quiet --disable-pip-version-check install 'moto[server]==5.2.5'
}

check_vm() {
	[ "$(uname -m)" = x86_64 ] || die "$(uname -m): the testbed's guests are x86_64; expected such a machine"
	need qemu-system-x86_64 qemu-system-x86
	need mkfs.ext4 e2fsprogs
	need unshare util-linux mount
	check_images
}

check_images() {
	need mmdebstrap mmdebstrap
	need_file '/usr/share/keyrings/debian-archive-keyring.gpg' debian-archive-keyring
}

install_missing() {
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || die "missing packages: ${missing[*]}; there is no apt-get here, install them" \
		"yourself"
	[ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
		die "missing packages: ${missing[*]}; neither root nor sudo is here, install them yourself"
	echo "setup: installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	local log
	log=$(mktemp)
	as_root apt-get update -qq >"$log" 2>&1 </dev/null || true # old lists may do; the install says if not
	as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >>"$log" 2>&1 </dev/null ||
		die "apt-get install ${missing[*]}: $(grep -m1 '^E:' "$log" || grep -m1 '^sudo:' "$log" || tail -1 "$log")"
	rm -f "$log"
}

# refresh_lists -- a fresh machine knows no package before this, not even which clang is its own.
refresh_lists() {
	command -v apt-get >/dev/null || return 0
	[ -n "$(apt-cache depends clang 2>/dev/null)" ] || as_root apt-get update -qq >/dev/null 2>&1 </dev/null || true
}

for part in "$@"; do
	case "$part" in
	build) check_go && check_cc ;;
	ctest) refresh_lists && check_ctest ;;
	shm) check_shm ;;
	java) refresh_lists && check_java ;;
	net) check_net ;;
	prometheus) check_prometheus ;;
	chrony) check_chrony ;;
	vm) refresh_lists && check_vm ;;
	images) refresh_lists && check_images ;;
	imagetest) refresh_lists && need skopeo skopeo && need umoci umoci && need jq jq && need curl curl ;;
	model) need spin spin ;;
	strace) need strace strace ;;
	static) need clang-tidy clang-tidy ;;
	hsm) need softhsm2-util softhsm2 && need pkcs11-tool opensc ;;
	pages)
		need ip iproute2 && need curl curl && need openssl openssl && need softhsm2-util softhsm2
		need pkcs11-tool opensc
		;;
	s3) check_s3 ;;
	moto) refresh_lists && need python3 python3 && need_file '/usr/lib/python3*/ensurepip' python3-venv &&
		install_missing && missing=() && check_moto ;;
	proto | format | docs) need python3 python3 && need_file '/usr/lib/python3*/ensurepip' python3-venv ;;
	*) die "unknown part \"$part\"; expected build, ctest, shm, java, net, prometheus, chrony, vm, model, strace," \
		"static, s3, moto, proto, format, docs, hsm or pages" ;;
	esac
done
install_missing
