package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"
)

// pathJSON is the gateway's reader and writer of JSON, which names fields by their whole path where a request cannot be read: of a fabric with many streams the
// name alone tells nobody which one it is.
type pathJSON struct{ *runtime.JSONPb }

// NewDecoder implements runtime.Marshaler.
func (p pathJSON) NewDecoder(from io.Reader) runtime.Decoder {
	decoder := json.NewDecoder(from)
	return runtime.DecoderFunc(func(into any) error {
		message, ok := into.(proto.Message)
		if !ok {
			return runtime.DecoderWrapper{Decoder: decoder, UnmarshalOptions: p.UnmarshalOptions}.Decode(into)
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return err
		}
		if err := p.UnmarshalOptions.Unmarshal(raw, message); err != nil {
			return fmt.Errorf("%s", withPath(raw, err.Error()))
		}
		return nil
	})
}

// jsonField finds the place and the name of a field in what the reader says.
var jsonField = regexp.MustCompile(`\(line (\d+):(\d+)\): (?:unknown field "([^"]*)"|invalid value for \S+ field ([^:\s]+):)`)

// withPath puts the path of a field in the place of its name.
func withPath(raw []byte, text string) string {
	text = strings.ReplaceAll(text, "\u00a0", " ")
	at := jsonField.FindStringSubmatchIndex(text)
	if at == nil {
		return text
	}
	line, _ := strconv.Atoi(text[at[2]:at[3]])
	column, _ := strconv.Atoi(text[at[4]:at[5]])
	path := jsonPath(raw, offsetOf(raw, line, column))
	begin, end := max(at[6], at[8]), max(at[7], at[9]) // of the name, whichever of the two it is
	if path == "" || strings.ContainsAny(path, "\": \n") {
		return text
	}
	return text[:begin] + path + text[end:]
}

// offsetOf is where a line and a column, both from 1 and of characters, are.
func offsetOf(raw []byte, line, column int) (at int) {
	for ; line > 1; line-- {
		next := bytes.IndexByte(raw[at:], '\n')
		if next < 0 {
			return len(raw)
		}
		at += next + 1
	}
	for ; column > 1 && at < len(raw); column-- {
		_, size := utf8.DecodeRune(raw[at:])
		at += size
	}
	return at
}

// jsonLevel is an object or a list that has begun and not ended.
type jsonLevel struct {
	isList    bool
	isKeyNext bool // of an object
	index     int
	key       string
}

// jsonPath is what leads to the key or value that begins at an offset, such as fabric.streams[3].align; "": there is none.
func jsonPath(raw []byte, at int) string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	levels := []*jsonLevel{{isList: true}} // the whole
	for {
		begin := int(decoder.InputOffset())
		for begin < len(raw) && strings.IndexByte(" \t\r\n,:", raw[begin]) >= 0 {
			begin++
		}
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		top := levels[len(levels)-1]
		delimiter, _ := token.(json.Delim)
		if delimiter == '}' || delimiter == ']' {
			levels = levels[:len(levels)-1]
			levels[len(levels)-1].next()
			continue
		}
		isKey := top.isKeyNext
		if isKey {
			top.key, _ = token.(string)
			top.isKeyNext = false
		}
		switch {
		case begin == at:
			return pathOf(levels)
		case delimiter != 0:
			levels = append(levels, &jsonLevel{isList: delimiter == '[', isKeyNext: delimiter == '{'})
		case !isKey:
			top.next()
		}
	}
}

// next goes behind a value.
func (l *jsonLevel) next() {
	l.index++
	l.isKeyNext = !l.isList
}

func pathOf(levels []*jsonLevel) string {
	var path strings.Builder
	for _, one := range levels[1:] {
		if one.isList {
			fmt.Fprintf(&path, "[%d]", one.index)
		} else {
			path.WriteString("." + one.key)
		}
	}
	return strings.TrimPrefix(path.String(), ".")
}
