package control

import (
	"encoding/base64"
	"fmt"

	api "github.com/farlog/farlog/pkg/api/v1"
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
	raw, err := base64.RawURLEncoding.DecodeString(request.GetPageToken())
	if err != nil {
		return "", 0, invalid("", []*api.Problem{{Field: "page_token", Value: fmt.Sprintf("%q", request.GetPageToken()), Rule: "expected next_page_token of the page before"}})
	}
	if size = int(request.GetPageSize()); size == 0 {
		size = pageSizeDefault
	}
	return string(raw), size, nil
}

// pageToken is for the page behind one that ends with a name.
func pageToken(last string) string { return base64.RawURLEncoding.EncodeToString([]byte(last)) }
