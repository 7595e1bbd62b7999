//go:build farlog_fault

package merge

var mutant = MutantNone

// SetMutant breaks every merge of this process; MutantNone mends them.
func SetMutant(m Mutant) { mutant = m }
