package check

import (
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func LevelName(level api.Level) string {
	return strings.ToLower(strings.TrimPrefix(level.String(), "LEVEL_"))
}

func PolicyName(policy api.Policy) string {
	return strings.ToLower(strings.TrimPrefix(policy.String(), "POLICY_"))
}
