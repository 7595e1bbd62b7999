#!/usr/bin/env bash
# inside.sh PART BEFORE -- what scripts/release-test.sh runs in a root that is thrown away: /packages/BEFORE and
# /packages/now are the packages of a version before and of now, /source the tree. PART: at the end of this file.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
part=$1 before=$2
home=/var/lib/farlog
checks=0

# check WHAT COMMAND... -- the command succeeds.
check() {
	"${@:2}" || { echo "not so: $1" && exit 1; }
	checks=$((checks + 1))
}

is() { # TEXT COMMAND... prints it
	local got
	got=$("${@:2}") && [ "$got" = "$1" ] || { echo "\"${*:2}\" printed \"${got:-}\", expected \"$1\"" && return 1; }
}

not() { ! "$@"; }

# as USER COMMAND... -- become it, with the group of the units.
as() {
	exec setpriv --reuid "$1" --regid farlog --init-groups "${@:2}"
}

version_of() {
	case "$1" in
	*.deb) dpkg-deb -f "$1" Version ;;
	*) rpm -qp --qf '%{VERSION}-%{RELEASE}' "$1" ;;
	esac
}

# write FROM TO -- append records by a fabric of one host, run as a role's user; it ends before the next step.
write() {
	local daemon
	as farlog-drain farlogd dev --data-dir "$home/drain" --listen 127.0.0.1:0 --metrics-listen off \
		--ready-file "$home/drain/ready" >"/tmp/daemon-$1.log" 2>&1 &
	daemon=$!
	until [ -s "$home/drain/ready" ]; do
		kill -0 "$daemon" || { cat "/tmp/daemon-$1.log" && return 1; }
		sleep 0.05
	done
	FARLOG_CONTROL=$(sed -n 's/.*"control":"\([^"]*\)".*/\1/p' "$home/drain/ready")
	export FARLOG_CONTROL FARLOG_TLS_DIR=$home/drain/tls
	[ "$1" != 1 ] || farlog stream create desk7/orders --size 1MiB --wait 60s
	seq "$1" "$2" | farlog append --stream desk7/orders
	farlog stream show desk7/orders
	until [ "$(stored)" = "$2" ]; do # the drain may still be at it
		kill -0 "$daemon" || { cat "/tmp/daemon-$1.log" && return 1; }
		sleep 0.05
	done
	kill "$daemon"
	wait "$daemon"
}

# stored -- the last record of the stream in the store; the records before are those of seq.
stored() {
	farlog replay "$home/drain/store" --stream desk7/orders --speed max >/tmp/dumped
	seq "$(wc -l </tmp/dumped)" | cmp -s - /tmp/dumped && wc -l </tmp/dumped
}

# state -- of all that is the host's own: rings, stores, keys.
state() {
	(cd / && find var/lib/farlog etc/farlog/tls -type f ! -name '*.lock' -print0 | sort -z | xargs -0 sha256sum)
}

# use_library -- the example of the README with what pkg-config says, and with the static library.
use_library() {
	local flags
	read -ra flags < <(pkg-config --cflags --libs farlog)
	cc /source/rdma/examples/01-append.c "${flags[@]}" -o /tmp/shared
	cc /source/rdma/examples/01-append.c -l:libfarlog.a -lpthread -o /tmp/static
	read -ra flags < <(pkg-config --cflags --libs farlog-history)
	cc /source/rdma/examples/05-consume.c "${flags[@]}" -o /tmp/consume
	check "the shared library is linked" grep -q libfarlog.so.0 <(ldd /tmp/shared)
	check "the static library is linked" not grep -q libfarlog <(ldd /tmp/static)
	/tmp/shared "mem:/var/lib/farlog-c.ring" | grep level=persistent
	/tmp/static "mem:/var/lib/farlog-c.ring" | grep level=persistent
	checks=$((checks + 2))
}

# prepare -- what an operator has on a host: a key, a changed setting, records.
prepare() {
	check "the programs are of the version before" is "farlog version $before" farlog --version
	check "the daemon too" is "farlogd version $before" farlogd --version
	check "keys are for roles only" is "750 root:farlog" stat -c '%a %U:%G' /etc/farlog/tls
	for role in control target drain host replica; do
		check "user of $role" grep -qw farlog <(id -nG "farlog-$role")
		[ -d "$home/$role" ] || install -d -m 0750 -o "farlog-$role" -g farlog "$home/$role" # as StateDirectory=
	done
	check "nothing is enabled" not compgen -G '/etc/systemd/system/*.wants/farlog-*'
	check "memory may be locked by group" \
		grep -q '^@farlog-rdma - memlock unlimited$' /etc/security/limits.d/farlog.conf
	getent group farlog-rdma
	install -m 0600 -o farlog-drain -g farlog /dev/null /etc/farlog/tls/drain.key
	echo 'a key' >/etc/farlog/tls/drain.key
	echo 'FARLOG_LOG_LEVEL=warn' >>/etc/farlog/drain.env
	write 1 1000
	state >/tmp/state
}

# quick_start -- the three commands of docs/how-to/install.md.
quick_start() {
	local commands daemon
	mapfile -t commands < <(sed -n '/^## Quick start/,/^## Packages/s/^[0-9]\. `\(.*\)`$/\1/p' \
		/source/docs/how-to/install.md)
	check "install.md has three commands" is 3 echo "${#commands[@]}"
	cd /packages/now
	eval "${commands[0]/apt install/apt-get install -y -q --no-install-recommends}"
	eval "${commands[1]} --metrics-listen off" >/tmp/quick.log 2>&1 &
	daemon=$!
	eval "${commands[2]}"
	until [ "$(farlog replay /var/lib/farlog/dev/store --stream desk7/orders --speed max)" = "buy 100" ]; do
		kill -0 "$daemon" || { cat /tmp/quick.log && return 1; }
		sleep 0.05
	done
	kill "$daemon"
	wait "$daemon" || true
	rm -r /var/lib/farlog/dev
	apt-get purge -y -q farlog farlogd
	cd /
}

# use_archive -- the commands of docs/how-to/archive-a-store.md with what was installed, in a network of its own.
use_archive() {
	apt-get install -y -q --no-install-recommends curl iproute2
	check "farlog archive keeps a store" unshare --net bash /source/scripts/release/inside.sh archived "$before"
}

archived() {
	local server archived
	ip link set lo up
	mkdir -p /tmp/s3/{objects,versions}
	export AWS_ACCESS_KEY_ID=desk AWS_SECRET_ACCESS_KEY=not-a-secret
	/packages/versitygw --port 127.0.0.1:9000 --access desk --secret not-a-secret --region eu-1 --quiet \
		posix --versioning-dir /tmp/s3/versions /tmp/s3/objects &
	server=$!
	curl --silent --show-error --fail --retry 100 --retry-all-errors --retry-delay 1 \
		--aws-sigv4 aws:amz:eu-1:s3 --user desk:not-a-secret --request PUT \
		--header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --header 'x-amz-bucket-object-lock-enabled: true' \
		http://127.0.0.1:9000/farlog-archive
	farlog ring format mem:/tmp/archived.ring --size 256KiB --record-len-max 4KiB --stream desk7/orders
	seq -f 'order %0500g' 1 150 | farlog append --ring mem:/tmp/archived.ring --ack none
	farlog ring drain mem:/tmp/archived.ring /tmp/archived --segment-size 16KiB
	farlog init archive --dir /etc/farlog
	export FARLOG_ARCHIVE_CONFIG=/etc/farlog/archive.yaml
	export FARLOG_ARCHIVE_ENDPOINT=http://127.0.0.1:9000 FARLOG_ARCHIVE_REGION=eu-1
	farlog archive run /tmp/archived --once
	archived=$(farlog archive verify --retain 1d --public-key /tmp/archived/signing.pub)
	check "the archive has all records: $archived" grep -q 'nothing is missing' <<<"$archived"
	rm /etc/farlog/archive.yaml
	kill "$server"
}

units() {
	[ -x /usr/bin/systemd-analyze ] || return 0
	local out
	out=$(systemd-analyze verify --man=no /usr/lib/systemd/system/farlog-*.service 2>&1) || true
	check "systemd knows all of the units: $out" not grep -E 'farlog' <<<"$out"
}

# gone -- none of the files that packages had is there; folders are, where something else is in them.
gone() {
	local path
	while read -r path; do
		[ -d "$path" ] || [ ! -e "$path" ] || { echo "$path is there" && return 1; }
	done </tmp/files
}

deb() {
	local now packages=(farlog farlogd farlog-archive libfarlog0 libfarlog-dev)
	now=$(version_of /packages/now/farlog_*.deb)
	quick_start
	apt-get install -y -q --no-install-recommends "/packages/$before/"*.deb
	prepare

	apt-get install -y -q --no-install-recommends /packages/now/*.deb
	units
	check "it is upgraded" is "$now" dpkg-query -W -f '${Version}' farlogd
	check "an upgrade leaves records and keys" cmp /tmp/state <(state)
	check "and settings" grep -q '^FARLOG_LOG_LEVEL=warn$' /etc/farlog/drain.env
	check "the new version says so" is "farlog version $(farlogd --version | sed 's/.* //')" farlog --version
	write 1001 2000
	use_library
	use_archive
	state >/tmp/state
	apt-get install -y -q --no-install-recommends --allow-downgrades "/packages/$before/"*.deb
	check "back one version leaves records and keys" cmp /tmp/state <(state)
	write 2001 3000
	apt-get install -y -q --no-install-recommends /packages/now/*.deb
	state >/tmp/state

	dpkg -L "${packages[@]}" | grep -v '^/etc/' >/tmp/files
	apt-get remove -y -q "${packages[@]}"
	check "a removal leaves records and keys" cmp /tmp/state <(state)
	check "and settings" grep -q '^FARLOG_LOG_LEVEL=warn$' /etc/farlog/drain.env
	check "and no program" gone
	dpkg --purge "${packages[@]}"
	check "a purge leaves records and keys" cmp /tmp/state <(state)
	check "and no settings" not ls /etc/farlog/drain.env
	check "and users, whose files there are" id farlog-drain
	apt-get install -y -q --no-install-recommends /packages/now/*.deb
	write 3001 4000
	dpkg --purge "${packages[@]}"
	rm -r /etc/farlog/tls/* /var/lib/farlog/*
	apt-get install -y -q --no-install-recommends /packages/now/farlogd_*.deb
	apt-get purge -y -q farlogd
	check "empty folders are purged" not ls -d /etc/farlog /var/lib/farlog
}

# rpm_all -- by Debian's rpm, in Debian's root: scripts run, dependencies of other names are not checked.
rpm_all() {
	local now
	apt-get install -y -q --no-install-recommends systemd
	for package in /packages/now/*.rpm; do
		rpm -qp --info --scripts --requires --list "$package"
	done
	now=$(version_of /packages/now/farlog-[0-9]*.rpm)
	mkdir -p /usr/lib64
	rpm --initdb
	rpm -U --nodeps "/packages/$before/"*.rpm
	prepare
	rpm -U --nodeps /packages/now/*.rpm
	check "it is upgraded" is "$now" rpm -q --qf '%{VERSION}-%{RELEASE}' farlogd
	check "an upgrade leaves records and keys" cmp /tmp/state <(state)
	check "and settings" grep -q '^FARLOG_LOG_LEVEL=warn$' /etc/farlog/drain.env
	write 1001 2000
	check "libraries are there" test -e /usr/lib64/libfarlog.so.0
	state >/tmp/state
	rpm -ql farlog farlogd farlog-archive libfarlog0 libfarlog-dev | grep -v '^/etc/' >/tmp/files
	rpm -e --nodeps farlog farlogd farlog-archive libfarlog0 libfarlog-dev
	check "a removal leaves records and keys" cmp /tmp/state <(state)
	check "and no program" gone
	check "settings that were changed are kept" grep -q '^FARLOG_LOG_LEVEL=warn$' /etc/farlog/drain.env.rpmsave
}

# java_all -- the example of java/README.md with the jar of the package, which brings the C library along.
java_all() {
	apt-get install -y -q --no-install-recommends openjdk-25-jdk-headless /packages/now/libfarlog-java_*.deb
	cd /tmp
	sed -n '/^```java$/,/^```$/p' /source/java/README.md | sed '/^```/d' >Append.java
	javac -cp /usr/share/java/farlog-client.jar Append.java
	java --enable-native-access=ALL-UNNAMED -cp /usr/share/java/farlog-client.jar:. Append mem:/var/lib/java.ring |
		tee appended
	check "the record is appended and read" is 2 grep -cE '^OK at VISIBLE$|^buy 100$' appended
	for name in client log4j2 logback; do
		check "$name has a name without version" test -e "/usr/share/java/farlog-$name.jar"
	done
}

# units_only -- what scripts/release/booted.sh needs, which systemd runs: it begins with the version before.
units_only() {
	apt-get install -y -q --no-install-recommends systemd util-linux libfabric1 curl \
		"/packages/$before/"{farlog_,farlogd_,farlog-archive_}*.deb
	units
	cat >/etc/systemd/system/farlog-test.service <<-END
		[Unit]
		Requires=basic.target systemd-journald.service
		After=basic.target systemd-journald.service
		SuccessAction=exit
		FailureAction=exit
		FailureActionExitStatus=1

		[Service]
		Type=oneshot
		ExecStart=/bin/bash /source/scripts/release/booted.sh $before
		StandardOutput=file:/booted.log
		StandardError=inherit
	END
}

case "$part" in
deb) deb ;;
java) java_all ;;
archived) archived ;;
units_only) units_only ;;
rpm) rpm_all ;;
lintian)
	lintian --fail-on error,warning --info --show-overrides /packages/now/*.deb
	checks=$(find /packages/now -name '*.deb' | wc -l)
	;;
esac
echo "$checks checks passed"
