//go:build !cgo

package main

import "context"

type remoteReader struct{}

func openRemoteReader(context.Context, *environment, string, []string) (*remoteReader, error) {
	return nil, errCoreMissing
}

func (*remoteReader) open(string) (imageSource, error) { return nil, errCoreMissing }
