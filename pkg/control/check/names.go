package check

import (
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// LevelName is a durability level as flags and files spell it.
func LevelName(level api.Level) string {
	return strings.ToLower(strings.TrimPrefix(level.String(), "LEVEL_"))
}

// PolicyName is a policy for a full ring as flags and files spell it.
func PolicyName(policy api.Policy) string {
	return strings.ToLower(strings.TrimPrefix(policy.String(), "POLICY_"))
}
