#!/bin/sh
# Regenerate the Go code of farlog.proto and fabric.proto, and docs/reference/api.md. The results are committed, so that
# a plain `go build` needs none of this. Versions are pinned: another generator version is another diff.
set -eu
cd "$(dirname "$0")"
root=$(cd ../../.. && pwd)
tools=${FARLOG_TOOLS:-$root/.tools}
mkdir -p "$tools"
if [ ! -x "$tools/venv/bin/python-grpc-tools-protoc" ]; then
	python3 -m venv "$tools/venv"
	"$tools/venv/bin/pip" install --quiet grpcio-tools==1.85.1
fi
export GOBIN="$tools/bin"
[ -x "$GOBIN/protoc-gen-go" ] || go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
[ -x "$GOBIN/protoc-gen-go-grpc" ] || go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
go run "$root/pkg/internal/gen/protodeps" >"$tools/deps.binpb"
"$tools/venv/bin/python-grpc-tools-protoc" --descriptor_set_in="$tools/deps.binpb" -I . \
	--plugin=protoc-gen-go="$GOBIN/protoc-gen-go" --go_out=. --go_opt=paths=source_relative \
	--plugin=protoc-gen-go-grpc="$GOBIN/protoc-gen-go-grpc" --go-grpc_out=. --go-grpc_opt=paths=source_relative \
	--descriptor_set_out="$tools/farlog.binpb" --include_source_info farlog.proto fabric.proto
# What pkg/internal/tidy compares: the .proto files that these were made from.
sha256sum farlog.proto fabric.proto >farlog.proto.sha256
mkdir -p "$root/docs/reference"
(cd "$root" && go run ./pkg/internal/gen/apidoc "$tools/farlog.binpb" pkg/api/v1/farlog.proto pkg/api/v1/fabric.proto \
	>docs/reference/api.md)
