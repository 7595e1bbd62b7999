//go:build !cgo

package main

import "context"

type farReader struct{}

func openFarReader(context.Context, *environment, string, []string) (*farReader, error) {
	return nil, errCoreMissing
}

func (*farReader) open(string) (imageSource, error) { return nil, errCoreMissing }
