#!/usr/bin/env bash
# images.sh OUT -- make OCI images of the packages in OUT/dist, and put them there: farlog, and farlog-rdma with the
# drivers of RDMA devices. Each is a tar of an OCI image layout. Its layers are what the programs need of Debian 12, the
# drivers, and farlog's own packages. No script of a package is run, no daemon is needed. The same packages give the
# same bytes. FARLOG_RELEASE_VERSION and SOURCE_DATE_EPOCH are those of build.sh.
set -euo pipefail
umask 022
cd "$(dirname "$0")/../.."
out=$(cd "$1" && pwd)
work=$out/images
version=${FARLOG_RELEASE_VERSION:-$(scripts/version.sh)}
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
arch=$(dpkg --print-architecture)
# Nobody's number on a host; the chart has the same.
user=65532
own=(farlog farlogd farlog-archive)
# Debian's packages are named one by one: by what they depend on, Perl and a shell would come along.
base=(libc6 gcc-12-base libgcc-s1 libatomic1 libfabric1 libibverbs1 librdmacm1 libnl-3-200 libnl-route-3-200 liburing2
	libblkid1 libuuid1 ibverbs-providers ca-certificates)
[ "$arch" != amd64 ] || base+=(libpsm-infinipath1 libpsm2-2 libnuma1)

# unpack NAME FOLDER PACKAGE... -- debs of a folder into that of a layer, with what scanners of images read of each.
unpack() {
	local root=$work/$1 package deb
	mkdir -p "$root/var/lib/dpkg/status.d"
	for package in "${@:3}"; do
		deb=$(compgen -G "$2/${package}_*.deb") || { echo "images: no $package in $2: expected one" >&2 && exit 1; }
		dpkg-deb -x "$deb" "$root"
		dpkg-deb -f "$deb" >"$root/var/lib/dpkg/status.d/$package"
	done
	find "$root/usr/share/doc" -type f ! -name copyright ! -name 'licences*' -delete
	(cd "$root/usr/share" && rm -rf man locale lintian bash-completion fish zsh farlog)
}

# layer NAME -- a compressed tar whose bytes depend on what is in the folder only.
layer() {
	local common=(-C "$work/$1" --sort=name --format=gnu "--mtime=@$time" --numeric-owner)
	tar "${common[@]}" --owner=0 --group=0 --exclude=./var/lib/farlog -cf "$work/$1.tar" .
	[ ! -d "$work/$1/var/lib/farlog" ] ||
		tar "${common[@]}" --owner="$user" --group="$user" -rf "$work/$1.tar" ./var/lib/farlog
	gzip -n "$work/$1.tar"
}

# system -- what the scripts of packages would have written.
system() {
	local root=$work/base
	mkdir -p "$root"/{etc/ssl/certs,var/lib/farlog,tmp}
	cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
	rm -r "$root/usr/share/ca-certificates" "$root/usr/sbin"
	echo "farlog:x:$user:$user:farlog:/var/lib/farlog:/usr/sbin/nologin" >"$root/etc/passwd"
	echo "farlog:x:$user:" >"$root/etc/group"
	echo "hosts: files dns" >"$root/etc/nsswitch.conf"
	[ ! -d "$root/usr/lib/libpsm1" ] || # an alternative of Debian's
		ln -s "$(cd "$root/usr/lib/libpsm1/" && echo ../libpsm1/libpsm_infinipath.so.1.*)" \
			"$root/usr/lib/x86_64-linux-gnu/libpsm_infinipath.so.1"
	chmod 0750 "$root/var/lib/farlog"
	chmod 1777 "$root/tmp"
}

# split_drivers -- libibverbs loads them where it finds these two folders. libfabric needs their libraries in any case.
split_drivers() {
	local folder=usr/lib/$(uname -m)-linux-gnu
	mkdir -p "$work/rdma/etc" "$work/rdma/$folder"
	mv "$work/base/etc/libibverbs.d" "$work/rdma/etc/"
	mv "$work/base/$folder/libibverbs" "$work/rdma/$folder/"
}

# image NAME LAYER...
image() {
	"$work/tool" -out "$work/$1.oci" -name "$1" -version "$version" -arch "$arch" -user "$user:$user" \
		-entrypoint /usr/bin/farlogd -volume /var/lib/farlog -created "$time" "${@:2}"
	tar -C "$work/$1.oci" --sort=name --format=ustar --mtime="@$time" --owner=0 --group=0 --numeric-owner \
		-cf "$out/dist/$1-$version-linux-$arch.oci.tar" .
}

rm -rf --one-file-system "$work"
mkdir -p "$work"
(cd scripts/tools/image && GOFLAGS=-buildvcs=false CGO_ENABLED=0 go build -o "$work/tool" .)
scripts/release/debs.sh "$work/debs" "$arch" "${base[@]}"
unpack base "$work/debs" "${base[@]}"
system
split_drivers
unpack own "$out/dist" "${own[@]}"
rm -r "$work/own/etc" "$work/own/usr/lib" # units and settings of hosts
for name in base rdma own; do
	layer "$name"
done
image farlog "$work/base.tar.gz" "$work/own.tar.gz"
image farlog-rdma "$work/base.tar.gz" "$work/rdma.tar.gz" "$work/own.tar.gz"
echo "images: farlog and farlog-rdma in $out/dist"
