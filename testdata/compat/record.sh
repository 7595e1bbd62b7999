#!/usr/bin/env bash
# record.sh DIR -- with farlog in PATH: a ring and a store of this version, DIR.tar.gz, for pkg/internal/e2e to open with
# all later versions. Once a release: testdata/compat/record.sh testdata/compat/X.Y. A recording is never changed.
# Records are "order N ", filled up to 1000 bytes: 1 to 2500 are in the store, of which two segments are sealed, and 2501
# to 2520 in the ring. The order of the store is merged.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

orders() { # FROM TO
	seq "$1" "$2" | awk '{ text = "order " $1 " "; while (length(text) < 1000) text = text "."; print text }'
}

cd "$dir"
farlog ring format mem:orders.ring --size 256KiB --stream desk7/orders
for ((from = 1; from <= 2500; from += 100)); do # less than the ring holds
	orders "$from" $((from + 99)) | farlog append --ring mem:orders.ring
	farlog ring drain mem:orders.ring store --segment-size 1MiB
done
farlog merge store
orders 2501 2520 | farlog append --ring mem:orders.ring
farlog verify store --output json >anchors.json
public=$(find . -name signing.pub)
cp "$public" public.key
rm -f store/*.lock store/*/*/lock
cd - >/dev/null
tar -C "$dir" --sparse --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -czf "$1.tar.gz" \
	orders.ring store anchors.json public.key
