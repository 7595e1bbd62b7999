#!/usr/bin/env bash
# imaged.sh DIST WORK VERSITYGW -- what scripts/release-test.sh runs in namespaces of its own: the images of DIST are
# read by skopeo, unpacked by umoci, and run as Kubernetes runs them by the chart: with a root that cannot be written,
# as nobody, with volumes and secrets. WORK is a folder for that. The last line says how many checks there were.
set -euo pipefail
dist=$1 work=$2 versitygw=$3
user=65532
volumes=$work/volumes tls=$work/tls home=/var/lib/farlog
export FARLOG_TLS_DIR=/etc/farlog/tls FARLOG_METRICS_LISTEN=off FARLOG_READY_FILE=$home/ready
declare -A pids
records=20000 # more than a segment
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

# unpack IMAGE -- by programs that are not of those who made it.
unpack() {
	local file tag
	file=$(compgen -G "$dist/$1-[0-9]*.oci.tar")
	tag=${file##*/} && tag=${tag#"$1"-} && tag=${tag%-linux-*}
	mkdir "$work/$1"
	tar -xf "$file" -C "$work/$1"
	check "skopeo reads $file" is "linux $(dpkg --print-architecture) $tag" skopeo inspect "oci:$work/$1" \
		--format '{{.Os}} {{.Architecture}} {{index .Labels "org.opencontainers.image.version"}}'
	umoci unpack --image "$work/$1:${tag//+/_}" "$work/bundle-$1" 2>"$work/umoci.log" ||
		{ cat "$work/umoci.log" && return 1; }
	check "$1 runs farlogd as nobody" is "[$user,$user,\"/usr/bin/farlogd\"]" \
		jq -c '.process | [.user.uid, .user.gid, .args[]]' "$work/bundle-$1/config.json"
	root=$work/bundle-$1/rootfs
	check "$1 has programs" test -x "$root/usr/bin/farlogd"
	check "$1 has no shell" is "" find "$root" -type d -name bin -prune -exec find {} -name sh -o -name '[bd]ash' \;
	check "$1 has authorities for https" grep -q 'BEGIN CERTIFICATE' "$root/etc/ssl/certs/ca-certificates.crt"
	check "the volume of $1 is the user's" is "750 $user:$user" stat -c '%a %u:%g' "$root/var/lib/farlog"
	mkdir -p "$root"/{proc,dev,etc/farlog/tls,var/lib/farlog-keys} # where a runtime mounts
}

# contained IMAGE VOLUME COMMAND... -- in the image's root; the settings are those of the environment.
contained() {
	exec unshare --mount --propagation private bash -euc 'root=$1 volumes=$2 tls=$3 user=$4
		mount --bind "$root" "$root"
		mount -o remount,bind,ro "$root"
		mount --bind "$volumes" "$root/var/lib/farlog"
		mount --bind "$volumes-keys" "$root/var/lib/farlog-keys"
		mount --bind "$tls" "$root/etc/farlog/tls"
		mount -o remount,bind,ro "$root/etc/farlog/tls"
		mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
		mount -t proc proc "$root/proc"
		mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
		for device in null:3 zero:5 urandom:9; do
			mknod -m 0666 "$root/dev/${device%:*}" c 1 "${device#*:}"
		done
		mkdir "$root/dev/shm"
		mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
		settings=()
		for name in $(compgen -A export | grep -E "^(FARLOG|AWS)_"); do
			settings+=("$name=${!name}")
		done
		exec setpriv --no-new-privs env -i PATH=/usr/bin "${settings[@]}" \
			/usr/sbin/chroot --userspec="$user:$user" --groups= "$root" "${@:5}"' contained \
		"$work/bundle-$1/rootfs" "$volumes/$2" "$tls" "$user" "${@:3}"
}

# tool COMMAND... -- the command line, in the image, by the administrator's certificate and the drain's volume.
tool() {
	(contained farlog drain "/usr/bin/$1" "${@:2}")
}

# start IMAGE ROLE COMMAND... -- as a pod of the chart; it serves when this returns.
start() {
	(contained "$1" "$2" "${@:3}" >"$work/$2.log" 2>&1) &
	pids[$2]=$!
	until [ -s "$volumes/$2/ready" ]; do
		kill -0 "${pids[$2]}" || { cat "$work/$2.log" && return 1; }
		sleep 0.05
	done
	check "$2 has no capability and no way to one" is "$user 0000000000000000 1" awk \
		'/^Uid:/ { uid = $2 } /^CapEff:/ { cap = $2 } /^NoNewPrivs:/ { nnp = $2 } END { print uid, cap, nnp }' \
		"/proc/${pids[$2]}/status"
}

# is_whole IMAGE -- what each program and library of the image needs is in it, and what programs open by name.
is_whole() {
	local root=$work/bundle-$1/rootfs loader file found
	loader=$(cd "$root" && compgen -G 'lib*/ld-linux-*.so.*')
	for file in libfabric.so.1 libibverbs.so.1 librdmacm.so.1 liburing.so.2 libblkid.so.1; do
		[ -n "$(find "$root" -name "$file")" ] || { echo "$1 has no $file" && return 1; }
	done
	while read -r file; do
		found=$(chroot "$root" "/$loader" --list "$file" 2>&1) && ! grep 'not found' <<<"$found" ||
			{ echo "$1: $file: $found" && return 1; }
	done < <(find "$root" -type f \( -name '*.so.*' -o -name '*-rdmav*.so' -o -path '*/bin/*' \) \
		! -name 'ld-linux*' -printf '/%P\n')
}

certificates() {
	local file
	tool farlog ca init $home/ca >/dev/null
	mv "$volumes/drain/ca"/* "$tls/"
	chown -R "root:$user" "$tls" # as a secret is mounted
	for file in "$tls"/*; do
		chmod 0440 "$file"
	done
}

# archive -- the container beside the drain, in whose pod it is.
archive() {
	mkdir -p "$work"/s3/{objects,versions}
	export AWS_ACCESS_KEY_ID=desk AWS_SECRET_ACCESS_KEY=not-a-secret
	"$versitygw" --port 127.0.0.1:9000 --access desk --secret not-a-secret --region eu-1 --quiet \
		posix --versioning-dir "$work/s3/versions" "$work/s3/objects" >"$work/s3.log" 2>&1 &
	curl --silent --show-error --fail --retry 100 --retry-all-errors --retry-delay 1 \
		--aws-sigv4 aws:amz:eu-1:s3 --user desk:not-a-secret --request PUT \
		--header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --header 'x-amz-bucket-object-lock-enabled: true' \
		http://127.0.0.1:9000/worm
	export FARLOG_ARCHIVE_URL=s3://worm/desk7 FARLOG_ARCHIVE_REGION=eu-1 FARLOG_ARCHIVE_ENDPOINT=http://127.0.0.1:9000
	(FARLOG_STORE_DIR=$home/drain/store FARLOG_RETAIN=1d FARLOG_POLL=100ms \
		contained farlog drain /usr/bin/farlog-archive run >"$work/archive.log" 2>&1) &
	pids[archive]=$!
}

is_stored() {
	tool farlog replay $home/drain/store --stream desk7/orders --speed max >"$work/replayed" 2>"$work/replay.log" &&
		seq $records | cmp -s - "$work/replayed"
}

is_archived() {
	tool farlog archive verify --retain 1d --public-key $home/drain/store/signing.pub >"$work/verify.log" 2>&1 &&
		grep -q 'nothing is missing' "$work/verify.log"
}

# until_true ROLE COMMAND... -- wait for it, two minutes, as long as the role is alive.
until_true() {
	local end=$((SECONDS + 120))
	until "${@:2}"; do
		kill -0 "${pids[$1]}" && [ "$SECONDS" -lt "$end" ] ||
			{ echo "not so: ${*:2}" && tail -n 40 "$work"/*.log && exit 1; }
		sleep 0.1
	done
	checks=$((checks + 1))
}

# roles -- with what the chart gives them, and a target, which is a host's.
roles() {
	FARLOG_DATA_DIR=$home/control FARLOG_LISTEN=127.0.0.1:7070 start farlog control /usr/bin/farlogd control
	FARLOG_DATA_DIR=$home/target FARLOG_HOST_NAME=target1 FARLOG_TARGET_LISTEN=ofi:tcp://127.0.0.1:7472 \
		start farlog-rdma target /usr/bin/farlogd target
	FARLOG_DATA_DIR=$home/drain FARLOG_HOST_NAME=drain1 FARLOG_STORE_KEYS=$home-keys/keys FARLOG_STORE_SEGMENT=1MiB \
		start farlog drain /usr/bin/farlogd drain
	tool farlog stream create desk7/orders --size 1MiB --wait 60s
	seq $records | tool farlog append --stream desk7/orders --ack none --transport ofi --window 100
	until_true drain is_stored
	archive
	until_true archive is_archived
}

stop() {
	local role
	for role in archive drain target control; do
		kill "${pids[$role]}"
		check "$role ends in order" wait "${pids[$role]}"
	done
}

trap 'kill $(jobs -p) 2>/dev/null' EXIT
ip link set lo up
for volume in control target drain; do
	install -d -m 0750 -o "$user" -g "$user" "$volumes/$volume" "$volumes/$volume-keys"
done
mkdir "$tls"
for name in farlog farlog-rdma; do
	unpack "$name"
	check "the libraries of $name are there" is_whole "$name"
done
for driver in 'libmlx5-rdmav*.so' mlx5.driver librxe-'rdmav*.so' rxe.driver; do
	check "farlog-rdma has $driver" test -n "$(find "$work/bundle-farlog-rdma" -name "$driver")"
	check "farlog has no $driver" test -z "$(find "$work/bundle-farlog" -name "$driver")"
done
certificates
check "the root cannot be written" grep -q 'read-only file system' <(tool farlog ca init /etc/ca 2>&1)
roles
stop
echo "$checks checks passed"
