// Package tidy holds the rules of this repository that a machine can check, as tests. Each failure names the place and
// the remedy. A rule of docs/hacking.md that matters is here; a rule that is not here is a habit.
package tidy
