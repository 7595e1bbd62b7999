package service

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// pageSizeDefault is the length of a page of which nothing was said.
const pageSizeDefault = 1000

// paged is a request for one page of a list that is in the order of names.
type paged interface {
	GetPageSize() uint32
	GetPageToken() string
}

// pageOf is the name after which a page begins, and the most it has.
func pageOf(request paged) (after string, size int, err error) {
	after, isToken := nameIn(request.GetPageToken())
	if !isToken {
		return "", 0, refusal.InvalidArgument("", []*api.Problem{{
			Field: "page_token",
			Value: fmt.Sprintf("%q", request.GetPageToken()), Rule: "expected next_page_token of the page before",
		}})
	}
	if size = int(request.GetPageSize()); size == 0 {
		size = pageSizeDefault
	}
	return after, size, nil
}

// pageToken is for the page behind one that ends with a name. A sum stands before the name, so that what is no token of
// ours is not taken for one: it would give the list from somewhere.
func pageToken(last string) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint32(nil,
		crc32.ChecksumIEEE([]byte(last))), last...))
}

// nameIn is what pageToken was given; nothing is that of the first page.
func nameIn(token string) (last string, isToken bool) {
	if token == "" {
		return "", true
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < 4 || binary.BigEndian.Uint32(raw) != crc32.ChecksumIEEE(raw[4:]) {
		return "", false
	}
	return string(raw[4:]), true
}

// onePage makes the page that a request asks for, of things in the order of their names; of leaves out those that it
// does not ask for.
func onePage[T any](request paged, names []string, of func(name string) (one T, isListed bool)) (items []T, next string,
	err error,
) {
	after, size, err := pageOf(request)
	if err != nil {
		return nil, "", err
	}
	last := ""
	for _, name := range names {
		if name <= after {
			continue
		}
		one, isListed := of(name)
		if !isListed {
			continue
		}
		if len(items) == size {
			return items, pageToken(last), nil
		}
		items, last = append(items, one), name
	}
	return items, "", nil
}

// keyed is one of the things that belong to a stream, with what orders it among them.
type keyed[T any] struct {
	key  string
	item T
}

// onePageOfStreams is onePage of what belongs to streams, several things each.
func onePageOfStreams[T any](request paged, streams []string, of func(stream string) []keyed[T]) (items []T,
	next string, err error,
) {
	after, size, err := pageOf(request)
	if err != nil {
		return nil, "", err
	}
	afterStream, _, _ := strings.Cut(after, keyedMark)
	last := ""
	for _, stream := range streams {
		if stream < afterStream {
			continue
		}
		for _, one := range of(stream) {
			key := stream + keyedMark + one.key
			if key <= after {
				continue
			}
			if len(items) == size {
				return items, pageToken(last), nil
			}
			items, last = append(items, one.item), key
		}
	}
	return items, "", nil
}

// keyedMark stands between a stream's name, which has none, and a key.
const keyedMark = "\x00"
