#!/usr/bin/env bash
# run.sh -- check the protocol of members (docs/explanation/members.md) by exhaustion within bounds, and that each of
# its mutants fails. Prints a table.
#   model/run.sh              all of it: about four minutes of one core, and 2 GiB of memory
#   MODEL_SKIP=NAME model/run.sh   but this run
#   model/run.sh NAME         that run alone, also one of those that are too large for all of it
#   model/run.sh -DRECORDS=4 -DWRITERS=3 ...   one run with these bounds (see the head of members.pml), and the trail to
#                                              a violation if there is one
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh build model
out=build/model
mkdir -p "$out"

# name, what must come of it (holds, fails), flags
runs=(
	"three-writers      holds -DWRITERS=3 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"power-and-return   holds -DWRITERS=2 -DRECORDS=3 -DCRASHES=1 -DJOINS=1"
	"k=1                holds -DK=1 -DWRITERS=2 -DRECORDS=3 -DCRASHES=1 -DJOINS=0"
	"locks              holds -DLOCKS -DK=1 -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=0"
	"k=3                holds -DK=3 -DWRITERS=2 -DRECORDS=3 -DCRASHES=1 -DJOINS=0"
	"plain              holds -DPLAIN -DWRITERS=2 -DRECORDS=2 -DCRASHES=1 -DJOINS=0"
	"FENCE_FEWER        fails -DWRITERS=2 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"GRANT_EARLY        fails -DWRITERS=2 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"EPOCH_ON_K         fails -DLOCKS -DK=1 -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=0"
	"COUNT_JOINER       fails -DWRITERS=2 -DRECORDS=3 -DCRASHES=0 -DJOINS=1"
	"REUSE_EARLY        fails -DWRITERS=2 -DRECORDS=3 -DCRASHES=0 -DJOINS=1"
	"LONGEST            fails -DWRITERS=3 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"HIGHEST_HEAD       fails -DWRITERS=2 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"LAST_RECORD        fails -DWRITERS=3 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"HEADS_APART        fails -DWRITERS=3 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"RELEASE_SEEN       fails -DWRITERS=3 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"RELEASE_UNCOMPARED fails -DWRITERS=3 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"RELEASE_FEW_TOLD   fails -DWRITERS=3 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"replace            holds -DREPLACE -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=0"
	"BLANK_COUNTED      fails -DREPLACE -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=0"
	"NEW_USED           fails -DREPLACE -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=0"
	"TOLD_LATE          fails -DREPLACE -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=0"
	"OLD_COUNTED        fails -DREPLACE -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=0"
	"FLOOR_LOW          fails -DREPLACE -DWRITERS=2 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"NEW_EARLY          fails -DREPLACE -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=0"
	"NEW_ALONE          fails -DREPLACE -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=0"
)
by_name=(
	"replace-overwritten holds -DREPLACE -DWRITERS=2 -DRECORDS=3 -DCRASHES=0 -DJOINS=0"
	"replace-return      holds -DREPLACE -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=1"
	"replace-power       holds -DREPLACE -DWRITERS=2 -DRECORDS=2 -DCRASHES=1 -DJOINS=0"
	"replace-k=1         holds -DREPLACE -DK=1 -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=0"
	"replace-k=3         holds -DREPLACE -DK=3 -DWRITERS=2 -DRECORDS=2 -DCRASHES=0 -DJOINS=0"
)
named=$(printf '%s\n' "${runs[@]}" "${by_name[@]}" | grep "^${1:-none} " || true)
mapfile -t runs < <(printf '%s\n' "${runs[@]}" | grep -v "^${MODEL_SKIP:-none} ")

# quick are mutants that fail within 100,000 states: optimized code saves less time there than compiling it takes.
quick="FENCE_FEWER|EPOCH_ON_K|HIGHEST_HEAD|RELEASE_SEEN|RELEASE_UNCOMPARED"
quick+="|BLANK_COUNTED|NEW_USED|TOLD_LATE|FLOOR_LOW|NEW_EARLY"

# check FOLDER FLAGS... -- leaves the checker's words in FOLDER/out. Of the small ones better code takes longer to make
# than it saves.
check() {
	local folder=$1 level=-O1
	shift
	case "$*" in *MUTANT*) ;; *WRITERS=3* | *REPLACE*RECORDS=3*) level=-O2 ;; esac
	[[ ! " $* " =~ MUTANT_($quick)\  ]] || level=-O0
	rm -rf "$folder"
	mkdir -p "$folder"
	cp model/*.pml model/canon.h "$folder"
	(
		cd "$folder"
		spin "$@" -a members.pml >spin.log
		cc "$level" -march=native -w -DNOREDUCE -DSAFETY -DNOFAIR -DNOCOMP -DMEMLIM=4096 -o pan pan.c
		./pan -m10000 -n >out || true # what it found, and whether it came to its end, stands in there
		rm pan pan.?
	)
}

# one NAME EXPECTED FLAGS... -- a line of the table; fails where it is not what was expected, or where the search was
# cut short.
one() {
	local name=$1 expected=$2 folder=$out/$1 began=$SECONDS found
	shift 2
	[ "$expected" = holds ] || set -- "-DMUTANT_$name" "$@"
	check "$folder" "$@"
	found="cut short"
	if grep -q 'assertion violated' "$folder/out"; then
		found=fails
	elif grep -q 'errors: 0$' "$folder/out" &&
		! grep -qE 'Search not completed|max search depth too small|out of memory' "$folder/out"; then
		found=holds
	fi
	printf '%-18s %-5s %9s states, depth %3s, %4.0f MiB, %3d s  %s\n' "$name" "$found" \
		"$(awk '/states, stored/ {print $1}' "$folder/out")" \
			"$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' "$folder/out")" \
		"$(awk '/memory usage/ {print $1}' "$folder/out")" $((SECONDS - began)) "$*"
	[ "$found" = "$expected" ] || { echo "model: $name: expected that it $expected; see $folder/out" >&2; return 1; }
}

case "${1:-}" in
"")
	failed=0
	printf '%s\n' "${runs[@]}" | xargs -P "${JOBS:-2}" -I '{}' bash -c 'exec model/run.sh --one {}' || failed=1
	holds=$(printf '%s\n' "${runs[@]}" | grep -c holds)
	summary="$holds runs hold, $((${#runs[@]} - holds)) mutants fail"
	[ "$failed" = 0 ] || summary=FAILED
	echo "model: $summary in $SECONDS s"
	exit "$failed"
	;;
--one) shift && one "$@" ;;
*)
	# shellcheck disable=SC2086 # flags are words
	[ -z "$named" ] || { one $named; exit; }
	check "$out/mine" "$@"
	cat "$out/mine/out"
	[ ! -f "$out/mine/members.pml.trail" ] ||
		echo "the trail: cd $out/mine && spin -t -p -g members.pml (with -DPLAIN, or who is who changes on the way)"
	;;
esac
