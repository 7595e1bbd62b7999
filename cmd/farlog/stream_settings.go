package main

import (
	"fmt"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// writerSettingsText is how the writer with a stream's newest grant acknowledges: as it said last, or as it was
// granted.
func writerSettingsText(grant *api.Grant) string {
	level, policy, deadline, source := grant.Level, grant.Policy, grant.Deadline, "as granted"
	if running := grant.Running; running != nil {
		level, policy, deadline, source = running.Level, running.Policy, running.Deadline, "as it runs"
	}
	limit := "of its region"
	if deadline != nil {
		limit = deadline.AsDuration().String()
	}
	return fmt.Sprintf("level %s, policy %s, deadline %s (%s)", shortName(level.String()), shortName(policy.String()),
		limit, source)
}
