package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/farlog/farlog/pkg/record"
)

// A members: URI, offline: its rings are read where they lie, and nobody is fenced.

const memberCountMax = 9 // FARLOG_MEMBER_COUNT_MAX; these commands do without the C core

const (
	memberAgrees = "agrees" // has what the stream's log has
	memberLacks  = "lacks"  // its log ends before that, or parts from it
	memberNew    = "new"    // knows no epoch: it tells nothing of the log
	memberLost   = "lost"   // had records that it has no longer
	memberAway   = "away"   // could not be read
)

// memberReport is one ring, held against the log that the next opening would choose.
type memberReport struct {
	URI         string `json:"uri"`
	RingUUID    string `json:"ring_uuid,omitempty"`
	State       string `json:"state"`
	WriterEpoch uint32 `json:"writer_epoch"`
	HeadLSN     uint64 `json:"head_lsn"`
	CommonLSN   uint64 `json:"common_lsn"` // up to here it has what the log has
	TailLSN     uint64 `json:"tail_lsn"`
	CutBytes    uint64 `json:"cut_bytes,omitempty"` // behind that, of an epoch that a later one has cut
	Text        string `json:"text,omitempty"`

	image *record.Image
	file  io.Closer
	log   []memberRecord
	tail  record.Cursor
}

// memberRecord is what two members must have alike.
type memberRecord struct {
	lsn   uint64
	epoch uint32
	crc   uint32
}

// membersReport is what a look at all of them found.
type membersReport struct {
	Needed      int    `json:"needed"`
	WriterEpoch uint32 `json:"writer_epoch"`
	// CutBy is the member whose superblock is the newest, from 1 on; 0: no member has an epoch.
	CutBy      int             `json:"cut_by"`
	BeganLSN   uint64          `json:"epoch_began_lsn"`
	HeadLSN    uint64          `json:"head_lsn"`
	TailLSN    uint64          `json:"tail_lsn"`
	DurableLSN uint64          `json:"durable_lsn"` // as many members as are needed have all up to here
	Chosen     int             `json:"chosen"`      // from 1 on
	Members    []*memberReport `json:"members"`
	Failure    string          `json:"failure,omitempty"`

	start  record.HeadSlot
	newest record.Superblock
}

// ringPath is where the image of a member lies; a URI without a scheme is its path.
func ringPath(uri string) (string, error) {
	path, _, _ := strings.Cut(uri, "?")
	scheme, rest, hasScheme := strings.Cut(path, ":")
	switch {
	case !hasScheme || strings.Contains(scheme, "/"):
		return path, nil
	case scheme == "mem" || scheme == "nvme":
		return rest, nil
	}
	return "", fmt.Errorf("expected mem:, nvme:, ofi:, verbs: or the path of its image")
}

// imageSource is where the bytes of a ring on another host come from.
type imageSource interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// isBehindNetwork tells a ring that only its target can reach.
func isBehindNetwork(uri string) bool {
	return strings.HasPrefix(uri, "ofi:") || strings.HasPrefix(uri, "verbs:")
}

// chunkedReader reads far bytes in large pieces: each costs a way there and back.
type chunkedReader struct {
	source imageSource
	off    int64
	chunk  []byte
}

const chunkBytes = 256 << 10

// ReadAt implements io.ReaderAt.
func (c *chunkedReader) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		at := off + int64(done) - c.off
		if at >= 0 && at < int64(len(c.chunk)) {
			done += copy(p[done:], c.chunk[at:])
			continue
		}
		start := (off + int64(done)) / chunkBytes * chunkBytes
		chunk := make([]byte, max(0, min(chunkBytes, c.source.Size()-start)))
		if len(chunk) <= int(off+int64(done)-start) {
			return done, io.EOF
		}
		if n, err := c.source.ReadAt(chunk, start); n < len(chunk) {
			return done, err
		}
		c.off, c.chunk = start, chunk
	}
	return done, nil
}

// openRemote opens the image of a ring on another host.
func (m *memberReport) openRemote(far *remoteReader) error {
	source, err := far.open(m.URI)
	if err != nil {
		return err
	}
	m.file = source
	m.image, err = record.OpenImage(&chunkedReader{source: source}, source.Size())
	return err
}

// open opens a member's image where it lies.
func (m *memberReport) open(far *remoteReader) error {
	if isBehindNetwork(m.URI) {
		return m.openRemote(far)
	}
	path, err := ringPath(m.URI)
	if err != nil {
		return err
	}
	image, file, err := openImage(path)
	if err == nil {
		m.image, m.file = image, file
	}
	return err
}

// openMembers reads the superblock and the head of each, and finds where the log begins and what cuts it. stream names
// whose rings they are, where any is on another host: the control plane grants that they are read. The caller closes
// it, also after an error.
func openMembers(ctx context.Context, env *environment, uri, stream string) (*membersReport, error) {
	words := strings.Split(strings.TrimPrefix(uri, "members:"), " ")
	uris := words[1:]
	needed, err := strconv.Atoi(words[0])
	if err != nil || needed < 1 || len(uris) < 2 || len(uris) > memberCountMax || needed > len(uris) ||
		slices.Contains(uris, "") {
		return nil, usageErrorf("%s: expected members:K and 2 to 9 URIs, separated by one space each, K of which an "+
			"acknowledgement needs", uri)
	}
	var far *remoteReader
	switch isFar := slices.ContainsFunc(uris, isBehindNetwork); {
	case isFar && stream == "":
		return nil, usageErrorf("%s: rings on other hosts: expected --stream with the name of the stream, for which "+
			"the control plane (--control) grants that they are read", uri)
	case !isFar && stream != "":
		return nil, usageErrorf("%s: --stream %s: none of the rings is on another host: expected no --stream", uri,
			stream)
	case isFar:
		if far, err = openRemoteReader(ctx, env, stream, uris); err != nil {
			return nil, err
		}
	}
	report := &membersReport{Needed: needed}
	for i, one := range uris {
		member := &memberReport{URI: one, State: memberAway}
		report.Members = append(report.Members, member)
		if err := member.open(far); err != nil {
			member.Text = err.Error()
			continue
		}
		if first := report.first(); first != member && !isSameStream(first.image.Superblock, member.image.Superblock) {
			return report,
				fmt.Errorf("%s: it is no member of the stream of %s: another salt, stream, capacity or align", one,
					first.URI)
		}
		member.addTo(report, i+1)
	}
	return report, nil
}

func (m *memberReport) addTo(report *membersReport, number int) {
	superblock, start := m.image.Superblock, m.image.Start()
	m.RingUUID, m.WriterEpoch, m.HeadLSN = superblock.RingUUID.String(), superblock.WriterEpoch, start.HeadLSN
	if superblock.WriterEpoch > report.newest.WriterEpoch {
		report.newest, report.CutBy = superblock, number
		report.WriterEpoch, report.BeganLSN = superblock.WriterEpoch, superblock.EpochStartLSN
	}
	if start.HeadLSN >= report.start.HeadLSN {
		report.start, report.HeadLSN = start, start.HeadLSN
	}
}

func isSameStream(one, other record.Superblock) bool {
	return one.Salt == other.Salt && one.StreamID == other.StreamID && one.Capacity == other.Capacity &&
		one.Align == other.Align
}

func (r *membersReport) first() *memberReport {
	for _, member := range r.Members {
		if member.image != nil {
			return member
		}
	}
	return nil
}

func (r *membersReport) close() {
	if r == nil {
		return
	}
	for _, member := range r.Members {
		if member.file != nil {
			_ = member.file.Close()
		}
	}
}

// choose reads the members' logs, and finds the one that the next opening would: of those that know an epoch and have
// lost nothing the one whose last record has the highest epoch, of several the longest.
func (r *membersReport) choose(ctx context.Context) (*memberReport, error) {
	var best *memberReport
	soundCount := 0
	for i, member := range r.Members {
		if member.image == nil {
			continue
		}
		if err := r.read(ctx, member); err != nil {
			return nil, err
		}
		if member.State != memberLacks {
			continue
		}
		soundCount++
		if best == nil || member.tail.Epoch > best.tail.Epoch ||
			(member.tail.Epoch == best.tail.Epoch && member.tail.LSN > best.tail.LSN) {
			best, r.Chosen = member, i+1
		}
	}
	if quorum := max(len(r.Members)-r.Needed+1, 1); soundCount < quorum || best == nil {
		return best, fmt.Errorf("%d of %d members that can be read have the log, expected %d at least: the others "+
			"may have more of it%s",
			soundCount, len(r.Members), quorum, r.troubles())
	}
	if away := r.awayCount(); r.WriterEpoch == 0 && away > 0 {
		return best, fmt.Errorf("%d of %d members can be read, and all of these are new: the others may know records "+
			"of the stream; expected all %d at its first opening%s",
			len(r.Members)-away, len(r.Members), len(r.Members), r.troubles())
	}
	r.TailLSN = best.tail.LSN
	return best, nil
}

func (r *membersReport) awayCount() (count int) {
	for _, member := range r.Members {
		if member.image == nil {
			count++
		}
	}
	return count
}

// troubles names the members that cannot be used, and why.
func (r *membersReport) troubles() string {
	var text strings.Builder
	for i, member := range r.Members {
		if member.Text != "" {
			fmt.Fprintf(&text, "; member %d: %s", i+1, member.Text)
		}
	}
	return text.String()
}

// read walks one member's log; a sound one lacks something until it has been compared.
func (r *membersReport) read(ctx context.Context, member *memberReport) error {
	walk := member.image.WalkMember(r.start, r.newest)
	rec, err := walk.Next()
	for ; err == nil && ctx.Err() == nil; rec, err = walk.Next() {
		member.log = append(member.log, memberRecord{rec.LSN, rec.Epoch, record.CRC32C(0, rec.Raw)})
	}
	if err := errors.Join(ctx.Err(), unlessEnd(err)); err != nil {
		return fmt.Errorf("%s: %w", member.URI, err)
	}
	member.tail, member.TailLSN, member.State = walk.Tail(), walk.Tail().LSN, memberLacks
	hint := member.image.DurableHintLSN
	if member.WriterEpoch == r.WriterEpoch && member.image.Superblock.EpochStartLSN > hint {
		hint = member.image.Superblock.EpochStartLSN // it was told of the epoch when it had all that lies below
	}
	switch {
	case member.WriterEpoch == 0 && r.WriterEpoch != 0:
		member.State, member.Text = memberNew, "it is new, and does not know the log"
	case member.tail.LSN < hint && hint-r.start.HeadLSN <= member.image.Superblock.Capacity:
		member.State, member.Text = memberLost, fmt.Sprintf("its records end at lsn %d (%v), and it had them up to "+
			"lsn %d", member.tail.LSN, walk.Reason(), hint)
	case errors.Is(walk.Reason(), record.ErrCut):
		return r.measureCut(member)
	}
	return nil
}

// unlessEnd is the error of a walk that was not the end of the log.
func unlessEnd(err error) error {
	if err == io.EOF || errors.Is(err, record.ErrLost) {
		return nil
	}
	return err
}

func (r *membersReport) measureCut(member *memberReport) error {
	walk := member.image.WalkUncut(r.start, r.newest.WriterEpoch)
	_, err := walk.Next()
	for err == nil {
		_, err = walk.Next()
	}
	if err := unlessEnd(err); err != nil {
		return fmt.Errorf("%s: %w", member.URI, err)
	}
	member.CutBytes = walk.Tail().LSN - member.tail.LSN
	member.Text = fmt.Sprintf("cut at lsn %d by epoch %d of member %d: %d bytes behind that are no longer of the log",
		r.BeganLSN, r.WriterEpoch, r.CutBy, member.CutBytes)
	return nil
}

// compare holds every member's log against the chosen one.
func (r *membersReport) compare(best *memberReport) {
	var common []uint64
	for i, member := range r.Members {
		if member.image == nil {
			continue
		}
		n := 0
		for n < len(member.log) && n < len(best.log) && member.log[n] == best.log[n] {
			n++
		}
		member.CommonLSN = member.tail.LSN
		if n < len(member.log) {
			member.CommonLSN = member.log[n].lsn
		}
		if member.State == memberLacks {
			common = append(common, member.CommonLSN)
			r.compareMember(member, best, n, i+1)
		}
		if member.State == memberLost && r.Failure == "" {
			r.Failure = fmt.Sprintf("member %d: %s", i+1, member.Text)
		}
		if hint := member.image.DurableHintLSN; hint > r.TailLSN &&
			hint-r.start.HeadLSN <= member.image.Superblock.Capacity && r.Failure == "" {
			r.Failure = fmt.Sprintf("the log ends at lsn %d, and member %d has it that records up to lsn %d are "+
				"acknowledged", r.TailLSN, i+1, hint)
		}
	}
	slices.Sort(common)
	if len(common) >= r.Needed {
		r.DurableLSN = common[len(common)-r.Needed]
	}
}

func (r *membersReport) compareMember(member, best *memberReport, n, number int) {
	add := func(text string) { member.Text = strings.TrimPrefix(member.Text+"; "+text, "; ") }
	switch {
	case n < len(member.log) && n < len(best.log) && member.log[n].epoch == best.log[n].epoch:
		add(fmt.Sprintf("lsn %d is another record of epoch %d than in member %d", member.log[n].lsn,
			member.log[n].epoch, r.Chosen))
		if r.Failure == "" {
			r.Failure = fmt.Sprintf("member %d: %s", number, member.Text)
		}
	case n < len(member.log):
		add(fmt.Sprintf("it parts from the log at lsn %d, with a record of epoch %d", member.log[n].lsn,
			member.log[n].epoch))
	case n < len(best.log):
		add(fmt.Sprintf("it lacks %d bytes from lsn %d on", r.TailLSN-member.CommonLSN, member.CommonLSN))
	default:
		member.State = memberAgrees
	}
}

// verifyMembers compares the members with each other.
func verifyMembers(ctx context.Context, env *environment, result *verifyResult, stream string) error {
	report, err := openMembers(ctx, env, result.Path, stream)
	defer report.close()
	if err != nil {
		return err
	}
	result.Members = report
	best, err := report.choose(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if best != nil {
		report.compare(best)
	}
	if err != nil {
		report.Failure = err.Error()
	}
	result.OK = report.Failure == ""
	return nil
}

func (r *membersReport) writeTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEMBER\tSTATE\tEPOCH\tHEAD\tCOMMON\tTAIL\tRING\tTEXT")
	for i, member := range r.Members {
		fmt.Fprintf(w, "%d\t%s\t%d\t%d\t%d\t%d\t%s\t%s\n", i+1, member.State, member.WriterEpoch, member.HeadLSN,
			member.CommonLSN, member.TailLSN, member.URI, member.Text)
	}
	if r.Failure != "" {
		fmt.Fprintf(w, "FAILED: %s\n", r.Failure)
		return w.Flush()
	}
	fmt.Fprintf(w, "the next opening chooses member %d: between lsn %d and %d nothing is missing, altered or out of "+
		"order; %d members have all up to lsn %d\n", r.Chosen, r.HeadLSN, r.TailLSN, r.Needed, r.DurableLSN)
	return w.Flush()
}

// members prints the log that the next opening would choose.
func (d *dumper) members(uri string) error {
	report, err := openMembers(d.ctx, d.env, uri, d.options.stream)
	defer report.close()
	if err != nil {
		return err
	}
	best, err := report.choose(d.ctx)
	if err != nil {
		return fmt.Errorf("dump %s: %w", uri, err)
	}
	return d.walk(best.URI, best.image.Superblock.StreamName, best.image.WalkMember(report.start, report.newest))
}
