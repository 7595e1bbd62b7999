#!/bin/sh
# record.sh [orders] [seed] -- record a trading session of two QuickFIX/J engines into testdata/fix/orders.fixlog.zst.
# Needs a JDK from 17 on, Maven, zstd and Go; loopback ports 19844 and 19842 free. Run by hand: the recording is
# committed, and no test starts this. It ends by rewriting the tables of testdata/fix/README.md from the recording
# itself.
set -eu
orders=${1:-12000}
seed=${2:-20261121}
cd "$(dirname "$0")"
recording=../fix/orders.fixlog
mvn -q -B compile dependency:build-classpath -Dmdep.outputFile=target/classpath
java -cp "target/classes:$(cat target/classpath)" farlog.recorder.Recorder "$recording" "$orders" "$seed"
zstd -q -19 --rm -f "$recording" -o "$recording.zst"
ls -l "$recording.zst"
cd ../..
go test ./pkg/audit/fixlog -run '^TestReadme_TablesMatchTheRecording$' -update
