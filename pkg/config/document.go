package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Mistake is one thing that is wrong in a YAML file, and where it stands; line and column from 1.
type Mistake struct {
	Line, Column int
	Text         string
}

// Error implements error.
func (m *Mistake) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", m.Line, m.Column, m.Text)
}

// emptyText is the Text of the mistake that a file has nothing in it but comments.
const emptyText = "the file is empty"

// Document reads the one document of a YAML file and gives its root. An empty file is a mistake: a file that was cut
// short, or is just being written, would mean that nothing is declared. So is a second document, which everybody but
// its writer would overlook.
func Document(raw []byte) (*yaml.Node, *Mistake) {
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	var first, second yaml.Node
	err := decoder.Decode(&first)
	switch {
	case errors.Is(err, io.EOF) || err == nil && len(first.Content) == 0:
		return nil, &Mistake{1, 1, emptyText}
	case err != nil:
		return nil, syntaxMistake(raw, err)
	}
	err = decoder.Decode(&second)
	switch {
	case err == nil:
		return nil, &Mistake{second.Line, second.Column, "a second document begins here: expected one in a file"}
	case !errors.Is(err, io.EOF):
		return nil, syntaxMistake(raw, err)
	}
	return first.Content[0], nil
}

// Referred gives what an alias stands for, as if it stood where the alias does, and any other node as it is.
func Referred(node *yaml.Node) *yaml.Node {
	if node.Kind != yaml.AliasNode {
		return node
	}
	referred := *node.Alias
	referred.Line, referred.Column = node.Line, node.Column
	return &referred
}
