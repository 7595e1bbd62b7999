#!/usr/bin/env bash
# debs.sh FOLDER ARCHITECTURE PACKAGE... -- download packages of Debian 12 into a folder, without what they depend on,
# whatever the system of this machine is.
set -euo pipefail
folder=$1 architecture=$2
log=$(mktemp)
trap 'rm "$log"' EXIT
"$(dirname "$0")/../setup.sh" images
mkdir -p "$folder"
mmdebstrap --quiet --variant=extract --architectures="$architecture" --format=null \
	--extract-hook="mkdir \"\$1/debs\" && cd \"\$1/debs\" &&
		APT_CONFIG=\$MMDEBSTRAP_APT_CONFIG apt-get download -qq ${*:3}" \
	--extract-hook="sync-out /debs $folder" bookworm >"$log" 2>&1 || { tail -5 "$log" >&2 && exit 1; }
