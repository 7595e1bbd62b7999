#!/bin/sh
# Regenerate farlog.pb.go and farlog_grpc.pb.go from farlog.proto. The results are committed, so that a plain
# `go build` needs none of this. Versions are pinned: another generator version is another diff.
set -eu
cd "$(dirname "$0")"
tools=${FARLOG_TOOLS:-$(cd ../../.. && pwd)/.tools}
mkdir -p "$tools"
if [ ! -x "$tools/venv/bin/python-grpc-tools-protoc" ]; then
	python3 -m venv "$tools/venv"
	"$tools/venv/bin/pip" install --quiet grpcio-tools==1.85.1
fi
export GOBIN="$tools/bin"
[ -x "$GOBIN/protoc-gen-go" ] || go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
[ -x "$GOBIN/protoc-gen-go-grpc" ] || go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
"$tools/venv/bin/python-grpc-tools-protoc" -I . \
	--plugin=protoc-gen-go="$GOBIN/protoc-gen-go" --go_out=. --go_opt=paths=source_relative \
	--plugin=protoc-gen-go-grpc="$GOBIN/protoc-gen-go-grpc" --go-grpc_out=. --go-grpc_opt=paths=source_relative \
	farlog.proto
# What pkg/internal/tidy compares: the .proto that these files were made from.
sha256sum farlog.proto >farlog.proto.sha256
