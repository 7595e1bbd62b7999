#!/usr/bin/env bash
# booted.sh BEFORE -- what scripts/release-test.sh runs below a real systemd, in a root with the packages of the version
# before: units start, say that they are ready, are upgraded, are killed, hang, and read credentials, while records are
# appended. The last line says how many checks there were.
set -euo pipefail
export LC_ALL=C.UTF-8 FARLOG_TLS_DIR=/var/tls
before=$1
tls=/etc/farlog/tls
home=/var/lib/farlog
examples=/source/deploy/systemd/role
checks=0 appended=0
roles=(control target drain host)

check() { # WHAT COMMAND...
	"${@:2}" || { echo "not so: $1" && journal && exit 1; }
	checks=$((checks + 1))
}

journal() {
	journalctl --no-pager -q -n 60 -o short-unix || true
}

value() { # UNIT PROPERTY
	systemctl show --value -p "$2" "farlog-$1"
}

is() { # TEXT COMMAND... prints it
	local got
	got=$("${@:2}") && [ "$got" = "$1" ] || { echo "\"${*:2}\" printed \"${got:-}\", expected \"$1\"" && return 1; }
}

# until_true WHAT COMMAND... -- wait for it, a minute.
until_true() {
	local end=$((SECONDS + 60))
	until "${@:2}"; do
		[ "$SECONDS" -lt "$end" ] || { echo "not within a minute: $1" && journal && exit 1; }
		sleep 0.1
	done
	checks=$((checks + 1))
}

has_restarted() { # ROLE COUNT
	[ "$(value "$1" NRestarts)" -ge "$2" ] && [ "$(value "$1" ActiveState)" = active ]
}

# append COUNT -- by the name of the stream, through the host agent.
append() {
	seq $((appended + 1)) $((appended + $1)) | farlog append --ring farlog://desk7/orders --ack none --window 100
	appended=$((appended + $1))
}

is_stored() {
	farlog replay "$home/drain/store" --stream desk7/orders --speed max >/tmp/replayed 2>/tmp/replay.log &&
		seq "$appended" | cmp -s - /tmp/replayed
}

certificates() {
	local role
	farlog ca init /var/tls
	cp /var/tls/{ca.crt,crl.pem} "$tls/"
	chmod 0644 "$tls"/{ca.crt,crl.pem}
	for role in "${roles[@]}"; do
		install -m 0600 -o "farlog-$role" -g farlog "/var/tls/$role.key" "$tls/"
		install -m 0644 "/var/tls/$role.crt" "$tls/"
	done
}

# start -- each unit has started when systemctl returns: who is next needs the one before at once.
start() {
	local role
	for role in "${roles[@]}"; do
		echo "FARLOG_METRICS_LISTEN=off" >>"/etc/farlog/$role.env"
		echo "FARLOG_HOST_NAME=${role}1" >>"/etc/farlog/$role.env"
	done
	echo "FARLOG_TARGET_LISTEN=ofi:tcp://127.0.0.1:7472" >>/etc/farlog/target.env
	echo "FARLOG_STORE_SEGMENT=1MiB" >>/etc/farlog/drain.env
	systemctl start farlog-control
	check "the control plane serves once its unit is active" farlog status
	for role in target drain host; do
		systemctl start "farlog-$role"
		check "$role says that it is ready" is "ready: $role" value "$role" StatusText
	done
	farlog stream create desk7/orders --size 1MiB --wait 60s
	append 1000
	until_true "records are stored" is_stored
}

# ends -- a role that is killed, and one that hangs, are started again; nothing that was appended is lost.
ends() {
	local role first
	for role in drain target control host; do
		systemctl kill --signal=KILL "farlog-$role"
		until_true "$role is started again after a kill" has_restarted "$role" 1
	done
	append 1000
	until_true "records are stored after kills" is_stored
	mkdir -p /etc/systemd/system/farlog-drain.service.d
	printf '[Service]\nWatchdogSec=20s\n' >/etc/systemd/system/farlog-drain.service.d/watchdog.conf
	systemctl daemon-reload
	systemctl restart farlog-drain
	append 1000
	first=$(value drain WatchdogTimestampMonotonic)
	until_true "a drain whose loop turns feeds its watchdog for longer than that waits" has_fed drain "$first" 25
	check "it was not started again" is 0 value drain NRestarts
	systemctl kill --signal=STOP farlog-drain
	until_true "a drain that hangs is started again" has_restarted drain 1
	append 1000
	until_true "records are stored after a hang" is_stored
	rm -r /etc/systemd/system/farlog-drain.service.d
}

# rolling -- to this version, back to the one before, and to this one again, role by role, while a program appends
# record by record: each is acknowledged, and stored once and in order.
rolling() {
	local version role writer acked
	append_on &
	writer=$!
	until_true "a record is acknowledged" has_acked 1
	for version in now "$before" now; do
		dpkg -i "/packages/$version/"{farlog_,farlogd_,farlog-archive_}*.deb
		for role in control target drain host; do
			systemctl restart "farlog-$role"
			check "$role of $version is ready" is "ready: $role" value "$role" StatusText
			check "it is the program of $version" cmp "/proc/$(value "$role" MainPID)/exe" /usr/bin/farlogd
			acked=$(wc -l </tmp/acked)
			until_true "records are acknowledged behind $role of $version" has_acked $((acked + 50))
		done
	done
	touch /tmp/enough
	wait "$writer"
	appended=$(tail -1 /tmp/written)
	check "all are acknowledged" has_acked "$(wc -l </tmp/written)"
	until_true "all are stored" is_stored
}

# append_on -- numbers behind what was appended, until it is enough.
append_on() {
	local number=$appended
	until [ -e /tmp/enough ]; do
		echo $((++number)) && sleep 0.01
	done | tee /tmp/written | farlog append --ring farlog://desk7/orders --ack text >/tmp/acked
}

has_acked() { # COUNT
	[ "$(grep -c '^[0-9].* #[0-9]*$' /tmp/acked)" -ge "$1" ]
}

has_fed() { # ROLE SINCE SECONDS -- its watchdog, by the clock of systemd, in microseconds
	[ "$(($(value "$1" WatchdogTimestampMonotonic) - $2))" -ge "$(($3 * 1000000))" ]
}

# credentials -- keys that are root's alone, by the example for a drop-in.
credentials() {
	mkdir -p /etc/systemd/system/farlog-target.service.d
	sed s/ROLE/target/g "$examples/credentials.conf" >/etc/systemd/system/farlog-target.service.d/credentials.conf
	chown root:root "$tls/target.key"
	systemctl daemon-reload
	systemctl restart farlog-target
	check "a target reads its key as a credential" is "ready: target" value target StatusText
	append 1000
	until_true "records are stored by it" is_stored
}

# exports -- the drop-in of a target that exports namespaces makes configfs and the state writable. In a kernel without
# configfs another folder of /sys takes its place.
exports() {
	local folder=/sys/kernel/config
	[ -d "$folder" ] || folder=/sys/kernel/mm
	sed "s|/sys/kernel/config|$folder|" "$examples/nvmet.conf" >/etc/systemd/system/farlog-target.service.d/nvmet.conf
	printf '{"version": 1, "evicted": {"%s:desk7": ["%s:desk7"]}}' nqn.2026-01.com.example{,} >"$home/nvmet.json"
	chmod 600 "$home/nvmet.json"
	printf '[Service]\nExecStartPre=/usr/bin/test -w %s\nExecStartPre=%s\n' "$folder" \
		"/usr/bin/farlog target nvmet readmit nqn.2026-01.com.example:desk7 --subsystem nqn.2026-01.com.example:desk7" \
		>/etc/systemd/system/farlog-target.service.d/probe.conf
	systemctl daemon-reload
	systemctl restart farlog-target
	check "$folder and the state are writable" is "ready: target" value target StatusText
	check "the state was written" test -z "$(grep evicted "$home/nvmet.json")"
	append 1000
	until_true "records are stored by a target of root's" is_stored
}

# archives -- the unit beside the drain, with credentials of the storage that are root's: active, killed, started again.
archives() {
	mkdir -p /var/s3/{objects,versions} /etc/systemd/system/farlog-archive.service.d
	/packages/versitygw --port 127.0.0.1:9000 --access desk --secret not-a-secret --region eu-1 --quiet \
		posix --versioning-dir /var/s3/versions /var/s3/objects >/var/s3/log 2>&1 &
	curl --silent --show-error --fail --retry 100 --retry-all-errors --retry-delay 1 \
		--aws-sigv4 aws:amz:eu-1:s3 --user desk:not-a-secret --request PUT \
		--header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --header 'x-amz-bucket-object-lock-enabled: true' \
		http://127.0.0.1:9000/farlog-archive
	farlog init archive --dir /etc/farlog
	export FARLOG_ARCHIVE_ENDPOINT=http://127.0.0.1:9000 FARLOG_ARCHIVE_REGION=eu-1
	export FARLOG_ARCHIVE_CONFIG=/etc/farlog/archive.yaml AWS_SHARED_CREDENTIALS_FILE=/etc/farlog/s3-credentials
	printf '%s\n' "FARLOG_ARCHIVE_ENDPOINT=$FARLOG_ARCHIVE_ENDPOINT" FARLOG_ARCHIVE_REGION=eu-1 FARLOG_POLL=100ms \
		>>/etc/farlog/archive.env
	printf '[default]\naws_access_key_id = desk\naws_secret_access_key = not-a-secret\n' >/etc/farlog/s3-credentials
	chmod 600 /etc/farlog/s3-credentials
	cp /source/deploy/systemd/archive/s3-credentials.conf /etc/systemd/system/farlog-archive.service.d/
	systemctl daemon-reload
	systemctl start farlog-archive
	check "the archive says what it does" grep -q "^archives $home/drain/store in s3://" <(value archive StatusText)
	append 20000 # more than a segment
	until_true "records are archived" is_archived
	systemctl kill --signal=KILL farlog-archive
	until_true "archive is started again after a kill" has_restarted archive 1
	append 20000
	until_true "they are stored" is_stored
	until_true "what was sealed since is archived" is_archived
}

# is_archived -- all that the drain has sealed, of which there is something.
is_archived() {
	farlog archive status "$home/drain/store" >/tmp/archived &&
		awk '$1 == "desk7/orders" && $3 > 0 && $2 == $3 { is = 1 } END { exit !is }' /tmp/archived
}

stop() {
	local role
	systemctl stop farlog-archive
	check "archive stops cleanly" is success value archive Result
	for role in host drain target control; do
		systemctl stop "farlog-$role"
		check "$role stops cleanly" is success value "$role" Result
	done
	farlog verify "$home/drain/store"
	until_true "all records are in the store" is_stored
}

trap '[ $? = 0 ] || journal' EXIT
certificates
start
rolling
ends
credentials
archives
exports
stop
echo "$checks checks passed"
