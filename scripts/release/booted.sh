#!/usr/bin/env bash
# booted.sh -- what scripts/release-test.sh runs below a real systemd, in a root with the packages: units start, say
# that they are ready, are killed, hang, and read credentials, while records are appended. The last line says how many
# checks there were.
set -euo pipefail
export LC_ALL=C.UTF-8 FARLOG_TLS_DIR=/var/tls
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
	seq $((appended + 1)) $((appended + $1)) | farlog append --ring farlog://desk7/orders --ack none
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
	systemctl start farlog-control
	check "the control plane serves once its unit is active" farlog status
	for role in target drain host; do
		systemctl start "farlog-$role"
		check "$role says that it is ready" is "ready: $role" value "$role" StatusText
	done
	farlog stream create desk7/orders --size 4MiB --wait 60s
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

stop() {
	local role
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
ends
credentials
exports
stop
echo "$checks checks passed"
