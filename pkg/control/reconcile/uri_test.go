package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// However many addresses a target listens at: a rail is of the transport that is asked for, or of the fastest; it is
// the same one each time; the members of a stream go round all of them, and many streams are spread so that none has
// much more than its share.
func TestFarURI_Rails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var uris []string
		counts := map[string]int{}
		for i := range rapid.IntRange(0, 6).Draw(t, "addresses") {
			scheme := rapid.SampledFrom([]string{TransportVerbs, TransportOFI}).Draw(t, "scheme")
			counts[scheme]++
			uris = append(uris, fmt.Sprintf("%s://10.0.%d.1:7471/x", scheme, i))
		}
		transport := rapid.SampledFrom([]string{"", TransportVerbs, TransportOFI}).Draw(t, "transport")
		wanted := transport
		if wanted == "" && counts[TransportVerbs] > 0 {
			wanted = TransportVerbs
		} else if wanted == "" {
			wanted = TransportOFI
		}
		rails := counts[wanted]
		prefix, spread := rapid.StringMatching(`[a-z]{1,8}/`).Draw(t, "prefix"), map[string]int{}
		const streams = 600
		for i := range streams {
			name, around := fmt.Sprint(prefix, "s", i), map[string]bool{}
			for member := range max(rails, 1) {
				uri := RemoteURI(uris, transport, name, member)
				if (uri == "") != (rails == 0) || uri != "" &&
					(!strings.HasPrefix(uri, wanted+":") || !slices.Contains(uris, uri)) ||
					uri != RemoteURI(slices.Clone(uris), transport, name, member) {
					t.Fatalf("of %v by %q: %q", uris, transport, uri)
				}
				around[uri] = true
			}
			if rails > 0 && len(around) != rails {
				t.Fatalf("%d members went by %v of %v", rails, around, uris)
			}
			spread[RemoteURI(uris, transport, name, 0)]++
		}
		for uri, count := range spread {
			if rails > 1 && (count > streams/rails*3/2 || len(spread) != rails) {
				t.Fatalf("%d of %d streams go by %s of %d rails", count, streams, uri, rails)
			}
		}
	})
}
