package tidy

import (
	"regexp"
	"slices"
	"testing"
)

// seamRules say how the rooms of the core use a region without knowing its kind (rdma/src/region/region.h, ops.h).
var seamRules = []struct {
	what   *regexp.Regexp
	exempt []string // rooms
	remedy string
}{
	{
		regexp.MustCompile(`region(->|\.)ops->(data|fence|members|block)\.\w+ *[!=]= *NULL`), nil,
		"each operation of a region is there: call it; what a kind has not is a function of region/defaults.c, " +
			"and whether it has it a capability (struct region_caps)",
	},
	{
		regexp.MustCompile(`\bmembers_of\(|\bstruct region_members\b`),
		[]string{"members"},
		"only the room members knows what is behind such a region: give struct region_members_ops what is missing",
	},
	{
		regexp.MustCompile(`contract\.kind *[!=]=`),
		[]string{"region", "mem", "target"}, // a target tells cards and people what its memory is
		"ask for what is meant: a capability (struct region_caps), or a function of region/region.h",
	},
}

func TestSeam_NobodyAsksForTheKindOfARegion(t *testing.T) {
	for _, f := range tracked(t, ".c", ".h") {
		room, isCore := roomOfCore(f.path)
		if !isCore {
			continue
		}
		for i, line := range f.lines() {
			for _, rule := range seamRules {
				if !slices.Contains(rule.exempt, room) && rule.what.MatchString(line) {
					t.Errorf("%s:%d: %s", f.path, i+1, rule.remedy)
				}
			}
		}
	}
}
