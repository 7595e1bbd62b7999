package grant

import (
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/state"
)

// A target of which nothing is declared is not told that it is to export nothing.
func TestRingsOf_NothingDeclaredIsNoEmptyDeclaration(t *testing.T) {
	agent := &api.Agent{Id: "t1", Host: "alpha"}
	if told := RingsOf(new(state.View), agent); told.NamespacesDeclared {
		t.Errorf("without a declaration it is told %v, want none", told)
	}
	view := &state.View{TargetSpecs: map[string]*api.TargetSpec{"alpha": {Host: "alpha"}}}
	if told := RingsOf(view, agent); !told.NamespacesDeclared || len(told.Namespaces) > 0 {
		t.Errorf("with one that has no namespaces it is told %v, want an empty declaration", told)
	}
}
