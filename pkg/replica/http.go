package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

const (
	pathChanges = "/v1/changes"
	pathRecords = "/v1/records"

	headerGeneration = "Farlog-Generation"
	headerEnd        = "Farlog-End"

	bodyBytesMax = 2<<30 - 1
)

// generationHeader is a generation on the wire.
type generationHeader struct {
	Number       uint64 `json:"number"`
	Stream       string `json:"stream"`
	StreamID     uint32 `json:"stream_id"`
	RingUUID     string `json:"ring_uuid"`
	Salt         uint64 `json:"salt,string"`
	Align        uint32 `json:"align"`
	RecordLenMax uint32 `json:"record_len_max"`
}

// Reader is somebody who asks a Handler. Its errors say why he may not.
type Reader interface {
	MayReadAny() error           // some stream, whichever
	MayRead(stream string) error // else he learns neither its records, nor that it is there and how long
	RulesDigest() string         // of what he may read: another one when that changes
}

// Guard decides who may read.
type Guard interface {
	// Identify says who asks; its error is why he is nobody.
	Identify(r *http.Request) (Reader, error)
	// Refused learns that somebody was refused what he asked for.
	Refused(r *http.Request, reason error)
}

// Handler lets other sites read a source.
func Handler(source Source, guard Guard) http.Handler {
	mux := http.NewServeMux()
	refuse := func(w http.ResponseWriter, r *http.Request, reason error) {
		guard.Refused(r, reason)
		http.Error(w, reason.Error(), http.StatusForbidden)
	}
	serve := func(path string, answer func(Reader, http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			reader, err := guard.Identify(r)
			if err != nil {
				refuse(w, r, err)
				return
			}
			if err := answer(reader, w, r); errors.Is(err, store.ErrNotFound) {
				http.Error(w, err.Error(), http.StatusNotFound)
			} else if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	serve(pathChanges, func(reader Reader, w http.ResponseWriter, r *http.Request) error {
		if err := reader.MayReadAny(); err != nil {
			refuse(w, r, err)
			return nil
		}
		// The mark is of what he might read: when that changes he is told of all streams.
		rules := reader.RulesDigest()
		since, isSame := strings.CutSuffix(r.URL.Query().Get("since"), "."+rules)
		if !isSame {
			since = ""
		}
		changes, err := source.Changed(r.Context(), since)
		if err != nil {
			return err
		}
		changes.Mark += "." + rules
		changes.Streams = slices.DeleteFunc(changes.Streams,
			func(one StreamInfo) bool { return reader.MayRead(one.Name) != nil })
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(changes) // whoever asked is gone
		return nil
	})
	serve(pathRecords, func(reader Reader, w http.ResponseWriter, r *http.Request) error {
		if err := reader.MayRead(r.URL.Query().Get("stream")); err != nil {
			refuse(w, r, err)
			return nil
		}
		return serveRecords(source, w, r)
	})
	return mux
}

func serveRecords(source Source, w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	var from store.Place
	var errs [3]error
	from.Generation, errs[0] = strconv.ParseUint(query.Get("generation"), 10, 64)
	epoch, err := strconv.ParseUint(query.Get("epoch"), 10, 32)
	from.Epoch, errs[1] = uint32(epoch), err
	from.LSN, errs[2] = strconv.ParseUint(query.Get("lsn"), 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	batch, err := source.Read(r.Context(), query.Get("stream"), from)
	if err != nil {
		return err
	}
	if g := batch.Generation; g.Number != 0 {
		raw, err := json.Marshal(generationHeader{
			g.Number, g.StreamName, g.StreamID, g.RingUUID.String(), g.Salt,
			g.Align, g.RecordLenMax,
		})
		if err != nil {
			return err
		}
		w.Header().Set(headerGeneration, string(raw))
	}
	w.Header().Set(headerEnd, strconv.FormatBool(batch.IsEnd))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(batch.Records)))
	_, _ = w.Write(batch.Records) // whoever asked is gone
	return nil
}

// HTTPSource is a store that a drain at another site serves (farlogd drain --store-serve).
type HTTPSource struct {
	base   string
	client *http.Client
}

// NewHTTPSource asks at base, such as https://drain.site-a:7471. The client knows how: certificates, time limits.
func NewHTTPSource(base string, client *http.Client) *HTTPSource {
	return &HTTPSource{strings.TrimSuffix(base, "/"), client}
}

// get asks, and gives the answer's body. A body that ends too early is an error.
func (s *HTTPSource) get(ctx context.Context, path string) (http.Header, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return nil, nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, bodyBytesMax))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read from %s: %w", s.base, err)
	case response.StatusCode == http.StatusNotFound:
		return nil, nil, fmt.Errorf("%w: %s: %s", store.ErrNotFound, s.base, strings.TrimSpace(string(body)))
	case response.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("%s: %s: %s", s.base, response.Status, strings.TrimSpace(string(body)))
	}
	return response.Header, body, nil
}

// Changed implements Source.
func (s *HTTPSource) Changed(ctx context.Context, since string) (found Changes, err error) {
	_, body, err := s.get(ctx, pathChanges+"?"+url.Values{"since": {since}}.Encode())
	if err == nil {
		err = json.Unmarshal(body, &found)
	}
	if err == nil && found.Mark == "" {
		err = fmt.Errorf("%s: no farlog drain answers there", s.base)
	}
	return found, err
}

// Read implements Source.
func (s *HTTPSource) Read(ctx context.Context, stream string, from store.Place) (batch Batch, err error) {
	query := url.Values{
		"stream": {stream}, "generation": {strconv.FormatUint(from.Generation, 10)},
		"epoch": {strconv.FormatUint(uint64(from.Epoch), 10)}, "lsn": {strconv.FormatUint(from.LSN, 10)},
	}
	header, body, err := s.get(ctx, pathRecords+"?"+query.Encode())
	if err != nil {
		return batch, err
	}
	if batch.IsEnd, err = strconv.ParseBool(header.Get(headerEnd)); err != nil {
		return batch, fmt.Errorf("%s: no farlog drain answers there: %w", s.base, err)
	}
	if len(body) == 0 {
		return batch, nil
	}
	var g generationHeader
	if err := json.Unmarshal([]byte(header.Get(headerGeneration)), &g); err != nil {
		return batch, fmt.Errorf("%s: generation of the records: %w", s.base, err)
	}
	uuid, err := record.ParseUUID(g.RingUUID)
	if err != nil || g.Stream != stream || g.Number == 0 {
		return batch, fmt.Errorf("%s: asked for stream %q, got generation %d of %q, ring %q", s.base, stream, g.Number,
			g.Stream, g.RingUUID)
	}
	batch.Records, batch.Generation = body, store.Generation{
		Number: g.Number,
		Source: store.Source{
			StreamName: g.Stream, StreamID: g.StreamID,
			RingUUID: uuid, Salt: g.Salt, Align: g.Align, RecordLenMax: g.RecordLenMax,
		},
	}
	return batch, nil
}
