// Command check fails when a program or shared library lacks a protection that the shipped ones have. Usage: check
// FILE...
package main

import (
	"fmt"
	"os"

	"github.com/farlog/farlog/pkg/internal/hardened"
)

func main() {
	passed, failed := 0, 0
	for _, path := range os.Args[1:] {
		lacks, err := hardened.Check(path)
		if err != nil {
			lacks = append(lacks, err.Error())
		}
		for _, lack := range lacks {
			fmt.Fprintf(os.Stderr, "%s: lacks %s\n", path, lack)
		}
		if len(lacks) > 0 {
			failed++
		} else {
			passed++
		}
	}
	fmt.Printf("hardened: %d passed, %d failed\n", passed, failed)
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}
