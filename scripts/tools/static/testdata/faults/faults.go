// Package faults has a fault for each tool that scripts/static.sh runs over the Go code, findings that are waved
// through, and directives that wave nothing through. The comment behind a line says what is reported of it.
package faults

import (
	"crypto/tls"
	"os"
	"strconv"
)

func Staticcheck(text string) (int, error) {
	value, _ := strconv.Atoi(text) // want SA4006
	value, err := strconv.Atoi(text + "0")
	return value, err
}

func Errcheck(path string) {
	os.Remove(path) // want errcheck
}

func Gosec() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} // want G402
}

func WavedThrough(path string) *tls.Config {
	os.Remove(path) //lint:ignore errcheck it may be gone
	//lint:ignore G402 what answers is checked by its own key
	return &tls.Config{InsecureSkipVerify: true}
}

func Directives(path string) *tls.Config {
	//lint:ignore SA4006 nothing is found here // want SA4006
	if err := os.Remove(path); err != nil {
		return nil
	}
	// want++ directives
	// want+ errcheck
	os.Remove(path)                              //lint:ignore errcheck
	return &tls.Config{InsecureSkipVerify: true} // #nosec G402 // want directives
}
