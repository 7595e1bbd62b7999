package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml4 "go.yaml.in/yaml/v4"
)

// yamlLine takes the line out of an error of the parser, which has no other form for it.
var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// Syntax says where a text is no YAML, and why; nil: it is.
func Syntax(raw []byte) *Mistake {
	if mistake := badCharacter(raw); mistake != nil {
		return mistake
	}
	// The parser that reads the files, version 3 of the same library, knows the column and does not tell.
	decoder := yaml4.NewDecoder(bytes.NewReader(raw))
	for {
		var document yaml4.Node
		err := decoder.Decode(&document)
		if err == nil {
			continue
		}
		var found *yaml4.LoadError
		if !errors.As(err, &found) || found.Mark.Line == 0 {
			return nil
		}
		text := found.Message
		if begin := found.ContextMark; begin.Line != 0 && begin.Line != found.Mark.Line {
			text = fmt.Sprintf("%s %s that begins at line %d, column %d", text, found.ContextMsg, begin.Line,
				begin.Column)
		}
		return &Mistake{found.Mark.Line, max(found.Mark.Column, 1), text}
	}
}

// syntaxMistake is what is wrong with a text that was not read. Where no column is known the line itself tells.
func syntaxMistake(raw []byte, err error) *Mistake {
	if mistake := Syntax(raw); mistake != nil {
		return mistake
	}
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	match := yamlLine.FindStringSubmatch(text)
	if match == nil {
		return &Mistake{1, 1, strings.TrimPrefix(text, "yaml: ")}
	}
	line, _ := strconv.Atoi(match[1])
	lines := strings.Split(string(raw), "\n")
	line = min(max(line, 1), len(lines))
	return &Mistake{line, 1, fmt.Sprintf("%s: %.80q", match[2], lines[line-1])}
}

// badCharacter finds what may not stand in a YAML file at all; the parser does not say where it is.
func badCharacter(raw []byte) *Mistake {
	line, column := 1, 1
	for at := 0; at < len(raw); column++ {
		one, size := utf8.DecodeRune(raw[at:])
		switch {
		case one == utf8.RuneError && size == 1:
			return &Mistake{line, column, fmt.Sprintf("the byte 0x%02x: expected text in UTF-8", raw[at])}
		case one == '\n':
			line, column = line+1, 0
		case one < ' ' && one != '\t' && one != '\r', one == 0x7f:
			return &Mistake{line, column, fmt.Sprintf("the character U+%04X: expected no control characters", one)}
		}
		at += size
	}
	return nil
}
