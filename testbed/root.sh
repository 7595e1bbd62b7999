#!/usr/bin/env bash
# root.sh DIR -- make the guests' root under DIR, once for each content of testbed/packages, testbed/kernels,
# testbed/guest/initrd, kernels.sh and this file.
# Prints the folder, which then holds
#   root/      the Debian 13 tree; our programs are built in it
#   root.img   the same as an ext4 image, from which the guests boot (read only, with a snapshot each)
#   vmlinuz    its kernel
#   initrd     modules to find the disk, and testbed/guest/initrd
#   vmlinuz-backports, initrd-backports    those of the distribution's backports: NVMe targets have reservations from
#                                          Linux 6.13 on
# nvmetcli is in Debian's unstable only; where that cannot be had the root is made without it, and nvmet-config says
# that it was not run. FARLOG_TESTBED_MIRROR: where Debian packages come from (default: mmdebstrap's own).
# FARLOG_TESTBED_KERNELS=newest: not the kernels that testbed/kernels pins, but the newest, by a root of their own that
# is kept for a day. Needs root.
set -euo pipefail
cd "$(dirname "$0")"

suite=trixie
packages=$(sed 's/#.*//' packages | tr -s ' \n' ',' | sed 's/^,//; s/,$//')
which=${FARLOG_TESTBED_KERNELS:-pinned}
case "$which" in
pinned) day="" ;;
newest) day=$(date -u +%F) ;;
*) echo "testbed: FARLOG_TESTBED_KERNELS=$which: expected newest, pinned or nothing" >&2; exit 2 ;;
esac
key=$(cat packages kernels guest/initrd kernels.sh root.sh - <<<"$day" | sha256sum | cut -c1-16)
mkdir -p "$1"
base=$(cd "$1" && pwd)
result=$base/root-$which-$key
new=$base/new-$key.$$
# What nothing in a guest reads, and modules of devices that none has.
excluded=(/usr/share/doc /usr/share/man /usr/share/locale /usr/share/info /usr/lib/firmware)
for path in sound drivers/gpu drivers/media drivers/iio drivers/staging drivers/usb drivers/net/wireless \
	drivers/net/ethernet; do
	excluded+=("/usr/lib/modules/*/kernel/$path")
done
# Where the second kernel and nvmetcli come from: the mirror of the rest, where that is an address.
case "${FARLOG_TESTBED_MIRROR:-}" in
http*) mirror=$FARLOG_TESTBED_MIRROR ;;
*) mirror=http://deb.debian.org/debian ;;
esac

say() {
	echo "testbed: $*" >&2
}

trap 'rm -rf --one-file-system "$new"' EXIT # never into what an interrupted bootstrap has left mounted there

# make_tree -- the kernel's own initrd is not made (INITRD=No): a guest needs six modules to find its disk, not udev and
# systemd.
make_tree() {
	local options=()
	for path in "${excluded[@]}"; do
		options+=("--dpkgopt=path-exclude=$path/*")
	done
	local both="'$PWD/kernels.sh' \"\$1\" $suite '$mirror' $which"
	# Only this package comes from unstable: what it depends on is installed already. A mirror that is not updated any
	# more serves as well, since apt checks its signature.
	local sources="\"\$1/etc/apt/sources.list.d/unstable.list\""
	local nvmetcli="export APT_CONFIG=\"\$MMDEBSTRAP_APT_CONFIG\" &&
		echo 'deb [check-valid-until=no] $mirror unstable main' >$sources && apt-get -q update &&
		apt-get -q -y --no-install-recommends -o DPkg::Chroot-Directory=\"\$1\" install nvmetcli ||
		echo 'no nvmetcli' >&2; rm -f $sources"
	INITRD=No mmdebstrap --quiet --mode=root --variant=minbase --skip=cleanup/apt/lists "${options[@]}" \
		--include="$packages" \
		--customize-hook="$both" --customize-hook="$nvmetcli" \
		"$suite" "$new/root" ${FARLOG_TESTBED_MIRROR:+"$FARLOG_TESTBED_MIRROR"} >"$new/mmdebstrap.log" 2>&1 || {
		grep '^testbed: ' "$new/mmdebstrap.log" >&2 && return 1
		tail -20 "$new/mmdebstrap.log" >&2
		say "mmdebstrap $suite failed: are the package mirrors reachable? FARLOG_TESTBED_MIRROR names another"
		return 1
	}
	rm -rf "$new/root/var/lib/apt/lists" "$new/root/var/cache/apt" "$new/root/boot/System.map"*
	# Modules are loaded from here at every boot: unpacked once instead of by every emulated processor.
	find "$new/root/usr/lib/modules" -name '*.ko.xz' -print0 | xargs -0 -P "$(nproc)" -n 64 xz -d
	for version in $(kernels); do
		chroot "$new/root" depmod "$version"
	done
}

# kernels -- their versions, the distribution's own first.
kernels() {
	ls "$new/root/usr/lib/modules" | sort -V
}

# make_initrd VERSION FILE -- busybox, the modules of disk and file system in the order in which they need each other,
# and the script. A module that a kernel has built in is none of its modules.
make_initrd() {
	local tree=$new/initrd.d module path
	mkdir -p "$tree"/{bin,dev,proc,sys,modules,newroot}
	cp "$new/root/usr/bin/busybox" "$tree/bin/busybox"
	install -m 755 guest/initrd "$tree/init"
	for module in virtio_pci virtio_blk crc32c_generic ext4; do
		chroot "$new/root" modprobe -q -S "$1" --show-depends "$module" || [ "$module" = crc32c_generic ]
	done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >"$new/modules"
	while read -r path; do
		cp "$new/root$path" "$tree/modules/"
		basename "$path" >>"$tree/modules/order"
	done <"$new/modules"
	(cd "$tree" && find . | "$new/root/usr/bin/busybox" cpio -o -H newc 2>/dev/null) >"$2"
	rm -rf "$tree" "$new/modules"
}

make_image() {
	local size_mib
	size_mib=$(($(du -sm "$new/root" | cut -f1) * 5 / 4 + 64))
	mkfs.ext4 -q -d "$new/root" -O ^has_journal "$new/root.img" "${size_mib}M" >/dev/null
}

if [ ! -e "$result/root.img" ]; then
	say "making the guests' root from Debian $suite (a minute or two; kept until testbed/packages, testbed/kernels" \
		"or root.sh changes)"
	mkdir -p "$new"
	make_tree
	of=""
	for version in $(kernels); do
		cp "$new/root/boot/vmlinuz-$version" "$new/vmlinuz$of"
		make_initrd "$version" "$new/initrd$of"
		of=-backports
	done
	[ -e "$new/initrd-backports" ] || { say "there is one kernel only: $suite-backports gave none"; exit 1; }
	make_image
	rm -rf --one-file-system "$base/root-$which-"*
	mv "$new" "$result"
	installed=$(chroot "$result/root" dpkg-query -W -f ' ${Package} ${Version},' 'linux-image-*-amd64')
	say "root made: $which kernels$installed $(du -sm "$result/root.img" | cut -f1) MiB"
fi
echo "$result"
