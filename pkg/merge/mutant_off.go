//go:build !farlog_fault

package merge

const mutant = MutantNone
