package main

import (
	"fmt"
	"os"

	"github.com/farlog/farlog/pkg/store"
)

// readAnchors reads the files that --anchor names. One that cannot be read is an error: nobody knows what it says.
func readAnchors(files []string) ([]store.Anchor, error) {
	var all []store.Anchor
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, pathError(file, err)
		}
		anchors, err := store.ParseAnchors(raw)
		if err != nil {
			return nil, fmt.Errorf("--anchor %s: %w", file, err)
		}
		for _, anchor := range anchors {
			anchor.Source = file
			all = append(all, anchor)
		}
	}
	return all, nil
}

// keepEnds gives the anchors of the ends that were found, to be kept where the store is not.
func (v *verifyResult) keepEnds() {
	for _, stream := range v.Streams {
		if stream.Failure == nil && stream.End != nil {
			v.Anchors = append(v.Anchors, *stream.End)
		}
	}
}
