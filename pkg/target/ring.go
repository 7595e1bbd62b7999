package target

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
)

const (
	ringSuffix    = ".ring"
	formingPrefix = ".forming-" // a ring that is being made; whatever has this name is ours to remove
)

// ringPath is where the ring of a stream lives: its name with the slashes escaped.
func (t *Target) ringPath(stream string) string {
	return filepath.Join(t.config.Dir, url.PathEscape(stream)+ringSuffix)
}

// streamOf is the inverse of ringPath.
func streamOf(path string) (string, bool) {
	escaped, ok := strings.CutSuffix(filepath.Base(path), ringSuffix)
	if !ok || strings.HasPrefix(escaped, formingPrefix) {
		return "", false
	}
	name, err := url.PathUnescape(escaped)
	return name, err == nil && name != ""
}

// found lists the ring files of the directory. A directory that cannot be read has none: the rings that are wanted then
// report why.
func (t *Target) found() []string {
	paths, err := filepath.Glob(filepath.Join(globEscape(t.config.Dir), "*"+ringSuffix))
	if err != nil {
		return nil
	}
	return paths
}

func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// ensure makes a ring that is missing, and says where it is. Whatever else is at its place is left alone, and the error
// says what would remedy it.
func (t *Target) ensure(spec *api.RingSpec) (site, error) {
	at := t.siteOf(spec)
	if spec.Subsystem != "" && t.regionOfNamespace(spec.Subsystem) == "" {
		return at, errUndeclared(spec.Subsystem)
	}
	status, err := t.inspect(at.uri)
	switch {
	case errors.Is(err, farlog.ErrNotFound) && t.wasProvided(spec) && !isToBeNew(spec) && !t.wasLost(spec):
		return at, missing(at, spec.Stream.Spec)
	case errors.Is(err, farlog.ErrNotFound):
		return t.provide(at, spec)
	case errors.Is(err, farlog.ErrNotARing) && at.path != "":
		return at, fmt.Errorf("%w; nothing was overwritten: to let farlog make the ring here, move the file away: mv "+
			"%s %s.old", err, at.path, at.path)
	case err != nil:
		return at, err
	}
	if isToBeNew(spec) && (status.WriterEpoch > 0 || isFormer(spec, status)) {
		return at, fmt.Errorf("%s %q holds a ring that stream %q had before (%x), and a new one is wanted: its "+
			"records are not those of now; move it away", at.kind(), at.name(), spec.Stream.Spec.Name, status.RingUUID)
	}
	if len(spec.RingUuid) > 0 && !bytes.Equal(spec.RingUuid, status.RingUUID[:]) {
		return at, fmt.Errorf("%s %q holds ring %x, expected ring %x of stream %q, %w: "+
			"put that %s back, or make the stream again under another name", at.kind(), at.name(), status.RingUUID,
			spec.RingUuid, spec.Stream.Spec.Name, errReplaced, at.kind())
	}
	return at, checkIdentity(at, status, spec.Stream)
}

// isToBeNew tells of a ring that takes the place of another one, until the control plane has seen it.
func isToBeNew(spec *api.RingSpec) bool { return spec.Replacement != nil && len(spec.RingUuid) == 0 }

func isFormer(spec *api.RingSpec, status farlog.Status) bool {
	return slices.ContainsFunc(spec.Replacement.FormerUuids,
		func(uuid []byte) bool { return bytes.Equal(uuid, status.RingUUID[:]) })
}

// acceptLoss makes a new ring count, once the operator has said that what only the one before had is lost.
func (t *Target) acceptLoss(spec *api.RingSpec, ring Ring) Ring {
	if !spec.GetReplacement().GetLossAccepted() || ring.State.Error != "" || ring.State.WriterEpoch > 0 ||
		!bytes.Equal(spec.RingUuid, ring.State.RingUuid) {
		return ring
	}
	if err := farlog.AcceptLoss(ring.State.Uri); err != nil {
		ring.State.Error = oneLine(fmt.Errorf("accept what stream %q has lost: %w", spec.Stream.Spec.Name, err))
		return ring
	}
	t.config.Logger.Warn("a new ring counts although records of the former one are lost", "stream",
		spec.Stream.Spec.Name, "by", spec.Replacement.By)
	ring.State.WriterEpoch = 1
	return ring
}

// errMissing is a ring that was there once. Whether it may be made again is the control plane's to say.
var errMissing = errors.New("and is not re-created because it may hold acknowledged records")

// errReplaced is a ring in the place of one that was there.
var errReplaced = errors.New("which may hold acknowledged records")

func missing(at site, spec *api.StreamSpec) error {
	remedy := fmt.Sprintf("farlog stream delete %s --ring-lost, and create it again, or make the stream again under "+
		"another name", spec.Name)
	if spec.Members > 1 {
		remedy = fmt.Sprintf("farlog stream members replace %s", spec.Name)
	}
	return fmt.Errorf("ring %q of stream %q is missing, %w: put the %s back; where it is gone for good: %s", at.name(),
		spec.Name, errMissing, at.kind(), remedy)
}

// wasLost reports whether a ring is missing that nobody was ever let in to write, as the control plane says: it is made
// again, unless another one was seen here since.
func (t *Target) wasLost(spec *api.RingSpec) bool {
	seen := t.provided[spec.Stream.Spec.Name]
	return len(spec.LostUuid) > 0 && len(spec.RingUuid) == 0 && (len(seen) == 0 || bytes.Equal(seen, spec.LostUuid))
}

// wasProvided reports whether this ring was there before: the control plane says so, and this process knows of what it
// made or saw before the control plane has learned of it.
func (t *Target) wasProvided(spec *api.RingSpec) bool {
	return len(spec.RingUuid) > 0 || len(t.provided[spec.Stream.Spec.Name]) > 0
}

// checkIdentity refuses the ring of another stream, or of a stream of the same name that some other control plane made:
// its records would be accepted under a wrong identity.
func checkIdentity(at site, status farlog.Status, stream *api.Stream) error {
	isOfStream := status.StreamName == stream.Spec.Name && status.StreamID == stream.StreamId &&
		status.Salt == stream.Salt
	switch want, err := encryptionOf(stream); {
	case err != nil:
		return err
	case isOfStream && status.Encryption == want:
		return nil
	case isOfStream:
		return fmt.Errorf("%s %q holds the ring of stream %q with encryption %s, expected %s: it was not made by this "+
			"control plane", at.kind(), at.name(), stream.Spec.Name, status.Encryption, want)
	}
	remedy := "make the stream under another name"
	if at.path != "" {
		remedy = fmt.Sprintf("then move it away: mv %s %s.old", at.path, at.path)
	}
	return fmt.Errorf("%s %q holds the ring of stream %q id %d made by another control plane, expected stream %q id "+
		"%d: drain it there, %s",
		at.kind(), at.name(), status.StreamName, status.StreamID, stream.Spec.Name, stream.StreamId, remedy)
}

// encryptionOf is what the stream is declared with. One that this program does not know is an error: it makes no ring.
func encryptionOf(stream *api.Stream) (record.Encryption, error) {
	if stream.Spec.Encryption == "" {
		return record.EncryptionNone, nil
	}
	encryption, err := record.ParseEncryption(stream.Spec.Encryption)
	if err != nil {
		return 0, fmt.Errorf("stream %q: %w", stream.Spec.Name, err)
	}
	return encryption, nil
}

// form makes the ring where there is space for it.
func (t *Target) form(at site, spec *api.RingSpec) (site, error) {
	encryption, err := encryptionOf(spec.Stream)
	if err != nil {
		return at, err
	}
	options := farlog.FormatOptions{
		SizeBytes:    spec.Stream.Spec.RingSizeBytes,
		Align:        spec.Stream.Spec.Align,
		RecordLenMax: spec.Stream.Spec.RecordLenMax,
		StreamID:     spec.Stream.StreamId,
		StreamName:   spec.Stream.Spec.Name,
		Salt:         spec.Stream.Salt,
		Encryption:   encryption,
	}
	if spec.Subsystem != "" {
		return t.formInNamespace(at, spec.Subsystem, options)
	}
	if at.path == "" {
		return t.formInRegion(options, spec.Stream.Spec.Level)
	}
	return at, t.formFile(at.path, options)
}

// formFile formats a ring under another name and then gives it its own, so that a crash leaves either no ring or a
// whole one. The link fails where a file has appeared meanwhile.
func (t *Target) formFile(path string, options farlog.FormatOptions) error {
	forming := filepath.Join(t.config.Dir, formingPrefix+filepath.Base(path))
	if err := os.Remove(forming); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := farlog.Format(fileSite(forming).uri, options); err != nil {
		return errors.Join(err, removeQuietly(forming))
	}
	if err := os.Link(forming, path); err != nil {
		return errors.Join(err, removeQuietly(forming))
	}
	return errors.Join(os.Remove(forming), syncDir(t.config.Dir))
}

func removeQuietly(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// syncDir makes a new name durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
