package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/control/pattern"
)

// ruleFile is a file of rules that is being read: it goes on behind what is wrong, so that all of it is told at once.
type ruleFile struct {
	rules    Rules
	mistakes []string
}

// ParseRules reads rules from YAML and checks them. Its error has each mistake with line and column.
func ParseRules(raw []byte) (Rules, error) {
	root, mistake := config.Document(raw)
	if mistake != nil {
		return nil, fmt.Errorf("%w (a file without rules says rules: [])", mistake)
	}
	var f ruleFile
	hasRules := false
	f.members(root, "", []string{"rules"}, func(_ string, list *yaml.Node) {
		hasRules = true
		if list.Kind != yaml.SequenceNode {
			f.fail(list, "rules: expected a list; [] for none")
			return
		}
		for i, node := range list.Content {
			f.rules = append(f.rules, f.rule(config.Referred(node), fmt.Sprintf("rules[%d]", i)))
		}
	})
	if !hasRules && len(f.mistakes) == 0 {
		f.fail(root, "expected the key rules")
	}
	if len(f.mistakes) > 0 {
		return nil, errors.New(strings.Join(f.mistakes, "; "))
	}
	return f.rules, nil
}

func (f *ruleFile) fail(at *yaml.Node, format string, values ...any) {
	text := strings.TrimLeft(fmt.Sprintf(format, values...), " :") // the root has no path
	f.mistakes = append(f.mistakes, (&config.Mistake{Line: at.Line, Column: at.Column, Text: text}).Error())
}

// members gives the values of a mapping to take; a key that is unknown or comes twice is a mistake.
func (f *ruleFile) members(node *yaml.Node, path string, known []string, take func(key string, value *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		f.fail(node, "%s: expected keys: %s", path, strings.Join(known, ", "))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		switch {
		case !slices.Contains(known, key.Value):
			f.fail(key, "%s %q: unknown key, expected one of %s", path, key.Value, strings.Join(known, ", "))
		case seen[key.Value]:
			f.fail(key, "%s %q: the key is there twice", path, key.Value)
		default:
			take(key.Value, config.Referred(node.Content[i+1]))
		}
		seen[key.Value] = true
	}
}

func (f *ruleFile) rule(node *yaml.Node, path string) (rule Rule) {
	hasRoles := false
	f.members(node, path, []string{"identities", "roles", "streams", "hosts"}, func(key string, value *yaml.Node) {
		texts := f.texts(value, path+"."+key, key)
		switch key {
		case "identities":
			rule.Identities = texts
		case "roles":
			hasRoles = true
			for _, role := range texts {
				rule.Roles = append(rule.Roles, Role(role))
			}
		case "streams":
			rule.Streams = texts
		case "hosts":
			rule.Hosts = texts
		}
	})
	if node.Kind != yaml.MappingNode {
		return rule
	}
	if len(rule.Identities) == 0 {
		f.fail(node, "%s: expected identities, such as spiffe://farlog/farlog/host/trading1", path)
	}
	if !hasRoles {
		f.fail(node, "%s: expected roles; [] takes away what the kind of certificate would give", path)
	}
	return rule
}

// texts reads a list of texts, each of which must be good for its key.
func (f *ruleFile) texts(node *yaml.Node, path, key string) (texts []string) {
	if node.Kind != yaml.SequenceNode {
		f.fail(node, "%s: expected a list", path)
		return nil
	}
	for i, element := range node.Content {
		element = config.Referred(element)
		if element.Kind != yaml.ScalarNode || element.Tag == "!!null" || element.Value == "" {
			f.fail(element, "%s[%d]: expected a text", path, i)
			continue
		}
		if key == "roles" && !slices.Contains(Roles, Role(element.Value)) {
			f.fail(element, "%s[%d]: role %q: expected one of %v", path, i, element.Value, Roles)
		}
		if key == "streams" {
			if err := pattern.Check(element.Value); err != nil {
				f.fail(element, "%s[%d]: %s", path, i, err)
			}
		}
		texts = append(texts, element.Value)
	}
	return texts
}
