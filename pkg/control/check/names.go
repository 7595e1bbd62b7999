package check

import (
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// LevelName is a durability level as flags and files spell it.
func LevelName(level api.Level) string {
	return strings.ToLower(strings.TrimPrefix(level.String(), "LEVEL_"))
}
