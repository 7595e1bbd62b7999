package replica

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
)

// everybody is a guard that lets everybody read.
type everybody struct{}

func (everybody) Identify(*http.Request) (Reader, error) { return everybody{}, nil }
func (everybody) Refused(*http.Request, error)           {}
func (everybody) MayRead(string) error                   { return nil }
func (everybody) MayReadAny() error                      { return nil }
func (everybody) RulesDigest() string                    { return "" }

// desk lets one stream be read, and keeps why others were not.
type desk struct {
	stream  string // "" = nobody is known, "-" = none may be read
	refused []string
}

func (d *desk) Identify(*http.Request) (Reader, error) {
	if d.stream == "" {
		return nil, errors.New("nobody")
	}
	return d, nil
}

func (d *desk) Refused(_ *http.Request, reason error) { d.refused = append(d.refused, reason.Error()) }

func (d *desk) MayReadAny() error {
	if d.stream == "-" {
		return errors.New("none")
	}
	return nil
}

func (d *desk) RulesDigest() string { return d.stream }

func (d *desk) MayRead(stream string) error {
	if stream == d.stream {
		return nil
	}
	return errors.New("not " + stream)
}

// twoStreams is a source that says when it is asked for records.
type twoStreams struct{ read []string }

func (s *twoStreams) Changed(context.Context, string) (Changes, error) {
	return Changes{Streams: []StreamInfo{{"desk7/orders", 1}, {"farlog/audit", 2}}, Mark: "mark"}, nil
}

func (s *twoStreams) Read(_ context.Context, stream string, _ store.Place) (Batch, error) {
	s.read = append(s.read, stream)
	return Batch{IsEnd: true}, nil
}

func TestHandler_GivesOnlyWhatTheReaderMayRead(t *testing.T) {
	source, guard := new(twoStreams), &desk{stream: "desk7/orders"}
	server := httptest.NewServer(Handler(source, guard))
	defer server.Close()
	client := NewHTTPSource(server.URL, server.Client())
	changes, err := client.Changed(t.Context(), "")
	if list := changes.Streams; err != nil || len(list) != 1 || list[0].Name != "desk7/orders" {
		t.Fatalf("%v, %v: expected the one stream that may be read", list, err)
	}
	if _, err := client.Read(t.Context(), "desk7/orders", store.Place{}); err != nil {
		t.Fatal(err)
	}
	for _, stream := range []string{"farlog/audit", "", "desk7/orders/../../farlog/audit"} {
		if _, err := client.Read(t.Context(), stream, store.Place{}); err == nil ||
			!strings.Contains(err.Error(), "403") {
			t.Fatalf("stream %q: %v", stream, err)
		}
	}
	guard.stream = "-"
	if _, err := client.Changed(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "403 Forbidden: none") {
		t.Fatalf("who may read nothing has got a list: %v", err)
	}
	guard.stream = ""
	if _, err := client.Changed(t.Context(), ""); err == nil ||
		!strings.Contains(err.Error(), "403 Forbidden: nobody") {
		t.Fatalf("nobody has got a list: %v", err)
	}
	want := []string{"not farlog/audit", "not ", "not desk7/orders/../../farlog/audit", "none", "nobody"}
	if !slices.Equal(guard.refused, want) || !slices.Equal(source.read, []string{"desk7/orders"}) {
		t.Fatalf("refused %q, read %q", guard.refused, source.read)
	}
}

// marked is a source in which nothing changes.
type marked struct{ twoStreams }

func (s *marked) Changed(ctx context.Context, since string) (found Changes, err error) {
	if found, err = s.twoStreams.Changed(ctx, since); since == found.Mark {
		found.Streams = nil
	}
	return found, err
}

// A reader who may read another stream by now is told of it though it has not changed.
func TestHandler_NamesWhatMayBeReadLater(t *testing.T) {
	guard := &desk{stream: "desk7/orders"}
	server := httptest.NewServer(Handler(new(marked), guard))
	defer server.Close()
	client, mark := NewHTTPSource(server.URL, server.Client()), ""
	for _, step := range []struct{ mayRead, named string }{
		{"desk7/orders", "desk7/orders"}, {"desk7/orders", ""}, {"farlog/audit", "farlog/audit"}, {"farlog/audit", ""},
	} {
		guard.stream = step.mayRead
		changes, err := client.Changed(t.Context(), mark)
		if err != nil {
			t.Fatal(err)
		}
		named := ""
		for _, one := range changes.Streams {
			named += one.Name
		}
		if named != step.named {
			t.Errorf("%+v: named %q", step, named)
		}
		mark = changes.Mark
	}
}
