//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/service"
	"github.com/farlog/farlog/pkg/farlog"
)

const (
	auditRingBytes    = 16 << 20
	auditDeadline     = 10 * time.Second // of one append
	auditRecordLenMax = 64 << 10
)

// auditWriter writes the audit stream: a stream like any other, whose writer is the control plane that leads.
type auditWriter struct {
	server *service.Server
	spec   *api.StreamSpec
	host   string
	writer *farlog.Writer
}

// newAudit is nil when nothing shall be recorded.
func newAudit(s *settings) (*auditWriter, error) {
	if s.auditStream == auditOff {
		return nil, nil
	}
	level, _ := farlog.ParseLevel(s.auditLevel) // the setting was checked
	return &auditWriter{host: s.hostName, spec: &api.StreamSpec{
		Name: s.auditStream, RingSizeBytes: auditRingBytes,
		RecordLenMax: auditRecordLenMax, Level: api.Level(level),
	}}, nil
}

// append makes records durable, in order. After an error it takes the stream again, with a new epoch: what was written
// and not acknowledged may come twice. Without records it takes the stream again in any case: who asks for that has
// seen that nobody holds it.
func (a *auditWriter) append(ctx context.Context, records [][]byte) (err error) {
	if len(records) == 0 {
		// of what is lost there is nothing to be told: everything in it was acknowledged, or will come again
		_ = a.close()
	}
	if a.writer == nil {
		if err := a.open(ctx); err != nil {
			return fmt.Errorf("open audit stream %s: %w", a.spec.Name, err)
		}
	}
	if len(records) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	entries := make([]farlog.Entry, len(records))
	for i, record := range records {
		entries[i].Data = record
	}
	if _, _, err := a.writer.AppendBatch(entries, 0, make([]farlog.Position, len(entries))); err != nil {
		return fmt.Errorf("append to audit stream %s: %w", a.spec.Name, err)
	}
	return nil
}

func (a *auditWriter) open(ctx context.Context) error {
	grant, err := a.server.GrantSystem(ctx, a.spec, a.host)
	if err != nil {
		return err
	}
	member := grant.Members[0]
	options := farlog.WriterOptions{
		Level: farlog.Level(grant.Level), Policy: farlog.PolicyBlock, Epoch: grant.Epoch,
		Deadline: auditDeadline, Name: "farlogd control",
	}
	if len(member.RingUuid) == 16 {
		options.RingUUID = (*[16]byte)(member.RingUuid)
	}
	if len(member.Token) == farlog.TokenLen {
		options.Token = (*[farlog.TokenLen]byte)(member.Token)
	}
	a.writer, err = farlog.OpenWriter(member.Uri, options)
	return err
}

func (a *auditWriter) close() error {
	if a == nil || a.writer == nil {
		return nil
	}
	writer := a.writer
	a.writer = nil
	return writer.Close()
}
