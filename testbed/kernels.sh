#!/usr/bin/env bash
# kernels.sh ROOT SUITE MIRROR WHICH -- install the guests' kernels in a root that mmdebstrap is making; a hook of
# root.sh. WHICH: pinned, those that testbed/kernels names, from the mirror, Debian's security updates or
# snapshot.debian.org, and no others; or newest, those of the suite and of its backports. Of its output, lines that
# begin with "testbed: " are root.sh's.
set -euo pipefail
cd "$(dirname "$0")"

root=$1 suite=$2 mirror=$3 which=$4
export APT_CONFIG=$MMDEBSTRAP_APT_CONFIG
list=$root/etc/apt/sources.list.d/kernels.list

install() {
	apt-get -q -y --no-install-recommends -o DPkg::Chroot-Directory="$root" install "$@"
}

# add_sources OPTIONS DEBIAN SECURITY -- what cannot be reached apt says, and goes on.
add_sources() {
	cat >>"$list" <<-END
		deb $1 $2 $suite main
		deb $1 $2 $suite-backports main
		deb $1 $3 $suite-security main
	END
	apt-get -q -o Acquire::http::Timeout=30 update
}

# pin N -- the Nth line of testbed/kernels, without comments.
pin() {
	sed 's/#.*//; /^ *$/d' kernels | sed -n "$1p"
}

install_pinned() {
	install "$(pin 1 | tr -s ' ' =)" && install --target-release "$suite-backports" "$(pin 2 | tr -s ' ' =)"
}

trap 'rm -f "$list"' EXIT
add_sources "" "$mirror" http://security.debian.org/debian-security
if [ "$which" = newest ]; then
	install linux-image-amd64 # the backports give nothing that is not asked of them
	install "linux-image-amd64/$suite-backports"
	exit
fi
if ! install_pinned; then
	day=$(pin 3 | sed -n 's/^snapshot  *//p')
	snapshot=http://snapshot.debian.org
	add_sources "[check-valid-until=no]" "$snapshot/archive/debian/$day" "$snapshot/archive/debian-security/$day"
	install_pinned || {
		available=$(apt-cache madison linux-image-amd64 | tr -s ' ' | cut -d'|' -f2,3 | sort -u | tr '\n' ';') ||
			available=unknown
		cat <<-END
			testbed: the pinned kernels are $(pin 1) and $(pin 2) (testbed/kernels)
			testbed: expected them at $mirror, http://security.debian.org/debian-security or $snapshot ($day)
			testbed: there now: $available
			testbed: FARLOG_TESTBED_KERNELS=newest takes the newest kernels; when all scenarios pass with them, pin them
			testbed: in testbed/kernels
			testbed: FARLOG_TESTBED_MIRROR=URL takes a mirror that still has the pinned ones
		END
		exit 1
	}
fi
