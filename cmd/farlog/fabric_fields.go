package main

import (
	"slices"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// apiField is a key whose value is a field of the API.
type apiField = fileField[protoreflect.Message]

// fabricFields are the keys of a fabric.yaml, in the order in which they are written.
var fabricFields = []apiField{
	listField("targets", targetFields...),
	listField("drains", drainFields...),
	listField("tenants", tenantFields...),
	listField("streams", streamFields...),
	listField("routes", nameField, listField("rules",
		valueField("criticality", "criticality_min", asCriticality),
		valueField("route", "route", asText),
		classesField,
		listField("legs", legFields...))),
}

var nameField = valueField("name", "name", asText)

var targetFields = []apiField{
	valueField("host", "host", asText),
	valueField("capacity", "capacity_bytes", asSize),
	valueField("closed", "closed", asBool),
	valueField("rack", "rack", asText),
	valueField("site", "site", asText),
	valueField("wear_limit", "wear_limit_percent", asPercent),
	listField("namespaces", nameField,
		valueField("device", "device", asText),
		valueField("subsystem", "subsystem", asText),
		listField("hosts",
			valueField("nqn", "nqn", asText),
			valueField("host", "host", asText),
			valueField("auth", "auth", asEnum("both", "host", "none"))),
		valueField("evict", "evict", asBool)),
	listField("ports",
		valueField("transport", "transport", asText),
		valueField("address", "address", asText),
		valueField("service", "service", asCount)),
}

var drainFields = []apiField{
	valueField("host", "host", asText),
	valueField("store", "store_dir", asText),
	valueField("streams_max", "streams_max", asCount),
	valueField("closed", "closed", asBool),
}

var tenantFields = []apiField{
	nameField,
	valueField("streams", "streams_max", asCount),
	valueField("ring_bytes", "ring_bytes_max", asSize),
	valueField("records_per_second", "records_per_second_max", asRate),
	valueField("bytes_per_second", "bytes_per_second_max", asSize),
}

var streamFields = []apiField{
	nameField,
	valueField("size", "ring_size_bytes", asSize),
	valueField("record_len_max", "record_len_max", asSize),
	valueField("align", "align", asSize),
	valueField("level", "level", asLevel),
	valueField("policy", "policy", asEnum("block", "reject")),
	valueField("deadline", "deadline", asDuration),
	valueField("members", "members", asCount),
	valueField("needed", "needed", asCount),
	valueField("failure_domain", "failure_domain", asText),
	valueField("kind", "kind", asText),
	valueField("encryption", "encryption", asText),
	valueField("target", "target_host", asText),
	valueField("writer_host", "writer_host", asText),
	valueField("latency_limit", "latency_limit", asDuration),
	valueField("drain", "drain_host", asText),
	valueField("records_per_second", "records_per_second", asRate),
	valueField("bytes_per_second", "bytes_per_second", asSize),
}

var legFields = []apiField{
	valueField("stream", "stream", asText),
	valueField("level", "level", asLevel),
	valueField("optional", "optional", asBool),
	valueField("policy", "policy", asEnum("fail", "spill", "drop")),
	valueField("buffer", "buffer_size_bytes", asSize),
	valueField("deadline", "deadline", asDuration),
}

// valueField is a key with one value.
func valueField(key, field string, unit fileUnit) apiField {
	return apiField{
		key: key, field: field, fromAPI: unit.fromAPI,
		set: func(item protoreflect.Message, text string) error {
			of := apiFieldOf(item, field)
			value, err := unit.read(of, text)
			if err == nil {
				item.Set(of, value)
			}
			return err
		},
		write: func(item protoreflect.Message) *yaml.Node {
			of := apiFieldOf(item, field)
			if !item.Has(of) {
				return nil
			}
			return scalar(unit.write(of, item.Get(of)))
		},
	}
}

// listField is a key with a list of items, each of which has keys; the API has it by the same name.
func listField(key string, items ...apiField) apiField {
	return apiField{
		key: key, field: key, items: items,
		read: func(f *fabricFile, item protoreflect.Message, path string, node *yaml.Node) {
			list := item.Mutable(apiFieldOf(item, key)).List()
			readItems(f, path, node, items, func() protoreflect.Message { return list.AppendMutable().Message() })
		},
		write: func(item protoreflect.Message) *yaml.Node {
			list := item.Get(apiFieldOf(item, key)).List()
			if list.Len() == 0 {
				return nil
			}
			node := &yaml.Node{Kind: yaml.SequenceNode}
			for i := range list.Len() {
				node.Content = append(node.Content, writeKeys(list.Get(i).Message(), items))
			}
			return node
		},
	}
}

// apiFieldOf is a field of the API by its name.
func apiFieldOf(item protoreflect.Message, name string) protoreflect.FieldDescriptor {
	return item.Descriptor().Fields().ByName(protoreflect.Name(name))
}

// fieldNamed finds the key of a kind of thing, such as stream, by the name of its field in the API.
func fieldNamed(kind, field string) (apiField, bool) {
	for _, list := range fabricFields {
		at := slices.IndexFunc(list.items, func(one apiField) bool { return one.field == field })
		if list.key == kind+"s" && at >= 0 {
			return list.items[at], true
		}
	}
	return apiField{}, false
}
