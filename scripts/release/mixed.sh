#!/usr/bin/env bash
# mixed.sh OLD NEW WORK -- what scripts/release-test.sh runs in namespaces of its own: a fabric whose programs, in two
# folders, differ in the version of remote connections. What meets another version is refused by name and number; what
# was acknowledged is stored when the versions agree again, whoever is upgraded first. WORK is a folder for that. The
# last line says how many checks there were.
set -euo pipefail
old=$1 new=$2 work=$3
export FARLOG_TLS_DIR=$work/tls FARLOG_METRICS_LISTEN=off
declare -A pids
checks=0 appended=0

# check WHAT COMMAND... -- the command succeeds.
check() {
	"${@:2}" || { echo "not so: $1" && tail -n 20 "$work"/*.log && exit 1; }
	checks=$((checks + 1))
}

not() { ! "$@"; }

# until_true WHAT COMMAND... -- wait for it, two minutes.
until_true() {
	local end=$((SECONDS + 120))
	until "${@:2}"; do
		[ "$SECONDS" -lt "$end" ] || { echo "not within two minutes: $1" && tail -n 20 "$work"/*.log && exit 1; }
		sleep 0.1
	done
	checks=$((checks + 1))
}

# start PROGRAMS ROLE -- it serves when this returns.
start() {
	rm -f "$work/$2.ready"
	FARLOG_DATA_DIR=$work/$2 FARLOG_HOST_NAME=${2}1 FARLOG_READY_FILE=$work/$2.ready "$1/farlogd" "$2" \
		>>"$work/$2.log" 2>&1 &
	pids[$2]=$!
	until_true "$2 serves" serves "$2"
}

serves() { # ROLE
	kill -0 "${pids[$1]}" || { tail -n 20 "$work/$1.log" && exit 1; }
	[ -s "$work/$1.ready" ]
}

# restart PROGRAMS ROLE -- as an upgrade does.
restart() {
	kill "${pids[$2]}"
	wait "${pids[$2]}"
	start "$1" "$2"
}

# append PROGRAMS -- a hundred records, all of which are acknowledged.
append() {
	seq $((appended + 1)) $((appended + 100)) | "$1/farlog" append --stream desk7/orders >>"$work/append.log" 2>&1
	appended=$((appended + 100))
}

# is_refused PROGRAMS CLIENT TARGET -- a writer, which says of which version it is and of which the target is, and has
# nothing acknowledged.
is_refused() {
	! echo never | "$1/farlog" append --stream desk7/orders --ack text >"$work/refused" 2>"$work/refused.log" &&
		grep -q "client speaks version $2; expected $3" "$work/refused.log" && ! grep -q '^[0-9]' "$work/refused"
}

# is_reported CLIENT TARGET -- that the drain is refused, in the status of the stream.
is_reported() {
	"$old/farlog" stream show desk7/orders >"$work/show.log" 2>&1 &&
		grep -q "client speaks version $1; expected $2" "$work/show.log"
}

# is_stored COUNT -- so many records, each once, in order, and no other.
is_stored() {
	"$old/farlog" replay "$work/drain/store" --stream desk7/orders --speed max >"$work/replayed" 2>"$work/replay.log" &&
		seq "$1" | cmp -s - "$work/replayed"
}

trap 'kill $(jobs -p) 2>/dev/null' EXIT
ip link set lo up
"$old/farlog" ca init "$work/tls" >"$work/ca.log"
export FARLOG_TARGET_LISTEN=ofi:tcp://127.0.0.1:7472
for role in control target drain; do
	start "$old" "$role"
done
"$old/farlog" stream create desk7/orders --size 4MiB --wait 60s >"$work/create.log"
append "$old"
until_true "records of one version are stored" is_stored 100

# Old target, new writer and new drain.
check "a new writer is refused by an old target" is_refused "$new" 3 2
append "$old"
until_true "an old writer goes on" is_stored 200
restart "$new" drain
append "$old"
until_true "an old target's status names a new drain's version" is_reported 3 2
check "and nothing more is stored" is_stored 200

# New target, old writer.
restart "$new" target
until_true "what was acknowledged meanwhile is stored" is_stored 300
check "an old writer is refused by a new target" is_refused "$old" 2 3
append "$new"
until_true "a new writer's records are stored" is_stored 400

# And back.
restart "$old" target
check "the writer is refused again" is_refused "$new" 3 2
append "$old"
until_true "a new drain is refused again" is_reported 3 2
restart "$old" drain
until_true "nothing is lost on the way back" is_stored 500
restart "$new" control
append "$old"
until_true "a new control plane does not stand between" is_stored 600
"$old/farlog" verify "$work/drain/store"
echo "$checks checks passed"
