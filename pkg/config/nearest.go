package config

import (
	"sort"
	"strings"
)

// nearestCountMax bounds how many names a "did you mean" offers.
const nearestCountMax = 3

// Nearest returns the names closest to a mistyped one, best first: at most three, none that is more than a third of
// its letters away. For "unknown stream" and "unknown setting" errors.
func Nearest(name string, known []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	for _, other := range known {
		distance := editDistance(strings.ToLower(name), strings.ToLower(other))
		if distance <= 2 || distance*3 <= max(len(name), len(other)) || isPart(name, other) {
			near = append(near, candidate{other, distance})
		}
	}
	sort.SliceStable(near, func(i, j int) bool {
		if near[i].distance != near[j].distance {
			return near[i].distance < near[j].distance
		}
		return near[i].name < near[j].name
	})
	names := make([]string, 0, nearestCountMax)
	for _, one := range near[:min(len(near), nearestCountMax)] {
		names = append(names, one.name)
	}
	return names
}

func didYouMean(name string, known []string) string {
	if near := Nearest(name, known); len(near) > 0 {
		return ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return ": expected one of " + strings.Join(known, ", ")
}

// isPart is for "orders" when "desk7/orders" is there. Short names would be part of everything.
func isPart(name, other string) bool {
	return len(name) >= 3 && (strings.Contains(other, name) || strings.Contains(name, other))
}

// editDistance is the Levenshtein distance in bytes, with one row of memory.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(row[j]+1, row[j-1]+1, cost)
		}
	}
	return row[len(b)]
}
