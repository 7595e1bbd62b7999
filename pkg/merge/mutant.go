package merge

// Mutant is one way to break a merge, which its crash tests must notice. Without the build tag farlog_fault there is
// none: mutant is then the constant MutantNone, and the compiler takes the comparisons away.
type Mutant int

// The mutants.
const (
	MutantNone              Mutant = iota
	MutantHeartbeatIgnored         // a heartbeat does not move its stream's position
	MutantIdleNotWaited            // a stream that has nothing at present is passed at once
	MutantTieByArrival             // of equal times that stream goes first which came first
	MutantLateUnmarked             // what came late says that its clock went back
	MutantDecisionForgotten        // what was decided is not kept for the next merge
)
