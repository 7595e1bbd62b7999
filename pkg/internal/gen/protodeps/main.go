// Command protodeps writes the descriptors of the .proto files of others that farlog.proto imports, from the Go code
// that was made of them: the modules have no .proto files, and nothing else has to be fetched.
package main

import (
	"fmt"
	"os"

	_ "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	_ "google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	_ "google.golang.org/protobuf/types/known/durationpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
)

func main() {
	set, seen := new(descriptorpb.FileDescriptorSet), map[string]bool{}
	for _, path := range []string{
		"buf/validate/validate.proto", "google/api/annotations.proto", "google/protobuf/duration.proto",
		"google/protobuf/timestamp.proto",
	} {
		file, err := protoregistry.GlobalFiles.FindFileByPath(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, "protodeps:", path, err)
			os.Exit(1)
		}
		add(set, seen, file)
	}
	raw, err := proto.Marshal(set)
	if err == nil {
		_, err = os.Stdout.Write(raw)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "protodeps:", err)
		os.Exit(1)
	}
}

// add puts a file behind those that it imports.
func add(set *descriptorpb.FileDescriptorSet, seen map[string]bool, file protoreflect.FileDescriptor) {
	if seen[file.Path()] {
		return
	}
	seen[file.Path()] = true
	for i := range file.Imports().Len() {
		add(set, seen, file.Imports().Get(i).FileDescriptor)
	}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
}
