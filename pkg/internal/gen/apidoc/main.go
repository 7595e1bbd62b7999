// Command apidoc writes docs/reference/api.md from the descriptors of farlog.proto, with its comments: apidoc DESCRIPTORS PROTO… >api.md.
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	_ "google.golang.org/protobuf/types/known/durationpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
}

func run(descriptors string, sources []string) error {
	raw, err := os.ReadFile(descriptors)
	if err != nil {
		return err
	}
	set := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(raw, set); err != nil {
		return err
	}
	known := new(protoregistry.Files)
	var files []protoreflect.FileDescriptor
	var made []string
	for i, source := range sources { // the last of the set, in this order
		text, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		file, err := protodesc.NewFile(set.File[len(set.File)-len(sources)+i], resolver{known})
		if err != nil {
			return err
		}
		if err := known.RegisterFile(file); err != nil {
			return err
		}
		files, made = append(files, file), append(made, fmt.Sprintf("%s (sha256 %x)", source, sha256.Sum256(text)))
	}
	fmt.Printf("# API farlog.v1\n\nGenerated from %s by `make generate`; do not edit.\n", strings.Join(made, " and "))
	fmt.Printf("gRPC and HTTP/JSON share the control plane's port: a client that offers only HTTP/2 gets gRPC. Who may call what: [security.md](../security.md).\n")
	writeFiles(files)
	return nil
}

// writeFiles puts the services of all files first, then their messages.
func writeFiles(files []protoreflect.FileDescriptor) {
	for _, file := range files {
		for i := range file.Services().Len() {
			writeService(file.Services().Get(i))
		}
	}
	fmt.Printf("\n## Messages\n")
	for _, file := range files {
		for i := range file.Messages().Len() {
			writeMessage(file.Messages().Get(i))
		}
	}
	fmt.Printf("\n## Enumerations\n")
	for _, file := range files {
		for i := range file.Enums().Len() {
			writeEnum(file.Enums().Get(i))
		}
	}
}

// resolver finds what a file imports: one of ours that came before it, or one of others.
type resolver struct{ ours *protoregistry.Files }

// FindFileByPath implements protodesc.Resolver.
func (r resolver) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if file, err := r.ours.FindFileByPath(path); err == nil {
		return file, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (r resolver) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if found, err := r.ours.FindDescriptorByName(name); err == nil {
		return found, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

func writeService(service protoreflect.ServiceDescriptor) {
	fmt.Printf("\n## %s\n\n%s\n", service.Name(), comment(service))
	fmt.Printf("\n| call | request | answer | HTTP | |\n|---|---|---|---|---|\n")
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		asked, answer := link(method.Input()), link(method.Output())
		if method.IsStreamingClient() {
			asked = "stream of " + asked
		}
		if method.IsStreamingServer() {
			answer = "stream of " + answer
		}
		fmt.Printf("| %s | %s | %s | %s | %s |\n", method.Name(), asked, answer, httpOf(method), inline(comment(method)))
	}
}

func httpOf(method protoreflect.MethodDescriptor) string {
	rule, _ := proto.GetExtension(method.Options(), annotations.E_Http).(*annotations.HttpRule)
	for verb, path := range map[string]string{"GET": rule.GetGet(), "POST": rule.GetPost(), "PUT": rule.GetPut(), "PATCH": rule.GetPatch(), "DELETE": rule.GetDelete()} {
		if path != "" {
			return "`" + verb + " " + path + "`"
		}
	}
	return ""
}

func writeMessage(message protoreflect.MessageDescriptor) {
	fmt.Printf("\n### %s\n", message.Name())
	if text := comment(message); text != "" {
		fmt.Printf("\n%s\n", text)
	}
	if message.Fields().Len() == 0 {
		return
	}
	fmt.Printf("\n| field | type | |\n|---|---|---|\n")
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		fmt.Printf("| %s | %s | %s |\n", field.Name(), typeOf(field), inline(strings.TrimSpace(comment(field)+" "+rulesOf(field))))
	}
}

func typeOf(field protoreflect.FieldDescriptor) string {
	name := field.Kind().String()
	switch {
	case field.Message() != nil:
		name = link(field.Message())
	case field.Enum() != nil:
		name = fmt.Sprintf("[%s](#%s)", field.Enum().Name(), strings.ToLower(string(field.Enum().Name())))
	}
	if field.IsList() {
		return "list of " + name
	}
	return name
}

// rulesOf tells the rules of a field: those with a text.
func rulesOf(field protoreflect.FieldDescriptor) string {
	rules, _ := proto.GetExtension(field.Options(), validate.E_Field).(*validate.FieldRules)
	var texts []string
	for _, rule := range rules.GetCel() {
		texts = append(texts, rule.GetMessage())
	}
	if most := rules.GetString().GetMaxLen(); most > 0 {
		texts = append(texts, fmt.Sprintf("at most %d characters", most))
	}
	if most := rules.GetUint32().GetLte(); most > 0 {
		texts = append(texts, fmt.Sprintf("at most %d", most))
	}
	if len(texts) == 0 {
		return ""
	}
	return "Rule: " + strings.Join(texts, "; ") + "."
}

func writeEnum(enum protoreflect.EnumDescriptor) {
	fmt.Printf("\n### %s\n\n%s\n\n| value | number | |\n|---|---|---|\n", enum.Name(), comment(enum))
	for i := range enum.Values().Len() {
		value := enum.Values().Get(i)
		fmt.Printf("| %s | %d | %s |\n", value.Name(), value.Number(), inline(comment(value)))
	}
}

func link(message protoreflect.MessageDescriptor) string {
	if message.ParentFile().Package() != "farlog.v1" {
		return string(message.FullName())
	}
	return fmt.Sprintf("[%s](#%s)", message.Name(), strings.ToLower(string(message.Name())))
}

// comment is what stands before a thing in the file, or behind it.
func comment(thing protoreflect.Descriptor) string {
	place := thing.ParentFile().SourceLocations().ByDescriptor(thing)
	var lines []string
	for _, line := range strings.Split(strings.TrimSpace(place.LeadingComments+" "+place.TrailingComments), "\n") {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

func inline(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
