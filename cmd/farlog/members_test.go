//go:build cgo

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
)

// memberRings are three rings of one stream, two of which an acknowledgement needs.
type memberRings struct {
	*testing.T
	paths []string
	uri   string
}

func newMemberRings(t *testing.T) *memberRings {
	t.Helper()
	m := &memberRings{T: t, uri: "members:2"}
	for i := range 3 {
		path := filepath.Join(t.TempDir(), fmt.Sprint("ring", i))
		m.paths, m.uri = append(m.paths, path), m.uri+" mem:"+path
		m.format(i)
	}
	return m
}

func (m *memberRings) format(i int) {
	m.Helper()
	if err := farlog.Format("mem:"+m.paths[i], farlog.FormatOptions{
		SizeBytes: 1 << 20, Salt: 99,
		Force: true,
	}); err != nil {
		m.Fatal(err)
	}
}

func (m *memberRings) read(i int) []byte {
	m.Helper()
	raw, err := os.ReadFile(m.paths[i])
	if err != nil {
		m.Fatal(err)
	}
	return raw
}

func (m *memberRings) write(i int, raw []byte) {
	m.Helper()
	if err := os.WriteFile(m.paths[i], raw, 0o600); err != nil {
		m.Fatal(err)
	}
}

// append has a new writer append so many records, while one member is away; -1: none is.
func (m *memberRings) append(count, away int) {
	m.Helper()
	if away >= 0 {
		raw := m.read(away)
		if err := os.Remove(m.paths[away]); err != nil {
			m.Fatal(err)
		}
		defer m.write(away, raw)
	}
	writer := m.open()
	m.feed(writer, count)
	if err := writer.Close(); err != nil {
		m.Fatal(err)
	}
}

func (m *memberRings) open() *farlog.Writer {
	m.Helper()
	writer, err := farlog.OpenWriter(m.uri, farlog.WriterOptions{Level: farlog.LevelVisible, CountersDir: "none"})
	if err != nil {
		m.Fatal(err)
	}
	return writer
}

func (m *memberRings) feed(writer *farlog.Writer, count int) {
	m.Helper()
	for i := range count {
		if _, err := writer.Append(farlog.Entry{Data: fmt.Appendf(nil, "order %d", i)}, 10*time.Second); err != nil {
			m.Fatal(err)
		}
	}
}

// verify says how each member is, and what farlog verify has against them.
func (m *memberRings) verify(code int) (*membersReport, string) {
	m.Helper()
	text, talk, got := runFarlog(m.T, "verify", m.uri, "--output", "json")
	var result verifyResult
	if err := json.Unmarshal([]byte(text), &result); err != nil || got != code || result.OK != (code == exitOK) ||
		result.Members == nil {
		m.Fatalf("exit code %d, expected %d, %v, stderr %q: %s", got, code, err, talk, text)
	}
	return result.Members, talk
}

func (m *memberRings) wantStates(report *membersReport, want string) {
	m.Helper()
	var states []string
	for _, member := range report.Members {
		states = append(states, member.State)
	}
	if got := strings.Join(states, " "); got != want {
		m.Errorf("the members are %q, expected %q", got, want)
	}
}

// wantDump says how many records of the application, and of all, farlog dump prints.
func (m *memberRings) wantDump(orders, all int) {
	m.Helper()
	text, talk, code := runFarlog(m.T, "dump", m.uri)
	if code != exitOK || strings.Count(text, "order ") != orders || strings.Count(text, "\n") != all {
		m.Errorf("dump: exit code %d, stderr %q, expected %d orders in %d lines:\n%s", code, talk, orders, all, text)
	}
}

func TestMembers_OneThatWasAwayLacksWhatTheOthersHave(t *testing.T) {
	m := newMemberRings(t)
	m.append(5, -1)
	before := [][]byte{m.read(0), m.read(1), m.read(2)}
	report, _ := m.verify(exitOK)
	m.wantStates(report, "agrees agrees agrees")
	m.wantDump(5, 6)
	for i := range before {
		if string(m.read(i)) != string(before[i]) {
			t.Errorf("member %d was changed by a look at it", i+1)
		}
	}
	m.append(3, 2)
	report, _ = m.verify(exitOK)
	m.wantStates(report, "agrees agrees lacks")
	if third := report.Members[2]; report.Chosen == 3 || report.CutBy == 3 || report.DurableLSN != report.TailLSN ||
		!strings.Contains(third.Text, "it lacks") || third.CommonLSN != report.BeganLSN {
		t.Errorf("%+v: %+v", report, third)
	}
	m.wantDump(8, 10)
	m.format(0)
	report, _ = m.verify(exitOK)
	m.wantStates(report, "new agrees lacks")
	m.wantDump(8, 10)
}

// A member holds more of an epoch than those had that the next one was opened with: it is cut where that one began,
// although its log is as long.
func TestMembers_CutBehindTheBeginningOfALaterEpoch(t *testing.T) {
	m := newMemberRings(t)
	writer := m.open()
	m.feed(writer, 5)
	first, second := m.read(0), m.read(1)
	m.feed(writer, 9)
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	m.write(0, first)
	m.write(1, second)
	report, _ := m.verify(exitOK)
	m.wantStates(report, "lacks lacks agrees")
	if report.Chosen != 3 || report.DurableLSN >= report.TailLSN {
		t.Errorf("%+v", report)
	}
	third := m.read(2)
	clear(third[record.DurableHintOffset : record.DurableHintOffset+8]) // nobody was told of what it alone has
	m.write(2, third)
	m.append(2, 2)
	m.append(2, 2)
	report, _ = m.verify(exitOK)
	m.wantStates(report, "agrees agrees lacks")
	if text := report.Members[2].Text; report.Members[2].CutBytes == 0 || report.CutBy == 3 ||
		!strings.Contains(text, fmt.Sprintf("cut at lsn %d by epoch 3", report.BeganLSN)) {
		t.Errorf("%+v: %q", report, text)
	}
	m.wantDump(9, 12)
}

func TestMembers_LostRecordsAndTooFewAreFailures(t *testing.T) {
	m := newMemberRings(t)
	m.append(5, -1)
	raw := m.read(1)
	raw[strings.Index(string(raw), "order 3")] ^= 1
	m.write(1, raw)
	report, talk := m.verify(exitFailure)
	m.wantStates(report, "agrees lost agrees")
	if !strings.Contains(talk, "member 2: its records end at lsn") || strings.Count(talk, "\n") != 1 {
		t.Errorf("stderr %q", talk)
	}
	m.wantDump(5, 6)
	if err := os.Remove(m.paths[0]); err != nil {
		t.Fatal(err)
	}
	if _, talk = m.verify(exitFailure); !strings.Contains(talk,
		"1 of 3 members that can be read have the log, expected 2 at least") {
		t.Errorf("stderr %q", talk)
	}
	if _, talk, code := runFarlog(t, "dump", m.uri); code != exitFailure ||
		!strings.Contains(talk, "expected 2 at least") {
		t.Errorf("dump: exit code %d, stderr %q", code, talk)
	}
}

// A power cut may take the durable hint: the superblock says where its epoch began, below which the member had
// everything.
func TestMembers_LostRecordsBelowTheBeginningOfItsEpoch(t *testing.T) {
	m := newMemberRings(t)
	m.append(5, -1)
	m.append(1, -1)
	raw := m.read(1)
	clear(raw[record.DurableHintOffset : record.DurableHintOffset+8])
	raw[strings.Index(string(raw), "order 3")] ^= 1
	m.write(1, raw)
	report, talk := m.verify(exitFailure)
	m.wantStates(report, "agrees lost agrees")
	if want := fmt.Sprintf("and it had them up to lsn %d", report.BeganLSN); !strings.Contains(talk, want) {
		t.Errorf("stderr %q, expected %q in it", talk, want)
	}
}

// A blank ring may stand where one was that had records: the next opening asks for all members where none that it
// reaches knows an epoch, and verify says no less.
func TestMembers_NewOnesAloneDoNotTellWhatTheOthersKnow(t *testing.T) {
	m := newMemberRings(t)
	m.verify(exitOK)
	m.append(5, -1)
	m.format(2)
	m.format(0)
	if err := os.Rename(m.paths[1], m.paths[1]+".away"); err != nil {
		t.Fatal(err)
	}
	if _, talk := m.verify(exitFailure); !strings.Contains(talk,
		"2 of 3 members can be read, and all of these are new") {
		t.Errorf("stderr %q", talk)
	}
	if _, err := farlog.OpenWriter(m.uri, farlog.WriterOptions{
		Level:       farlog.LevelVisible,
		CountersDir: "none",
	}); err == nil || !strings.Contains(err.Error(),
		"2 of 3 members are reached, and all of these are new") {
		t.Errorf("opening them: %v", err)
	}
}

// Each of the three has another record damaged: none can be used, and the bytes that another one has at the same place
// mend it, as docs/how-to/repair-damaged-members.md says.
func TestMembers_EachDamagedElsewhereIsMendedByHand(t *testing.T) {
	m := newMemberRings(t)
	m.append(5, -1)
	for i := range m.paths {
		raw := m.read(i)
		raw[strings.Index(string(raw), fmt.Sprint("order ", i+1))] ^= 1
		m.write(i, raw)
	}
	if _, talk := m.verify(exitFailure); !strings.Contains(talk, "0 of 3 members that can be read have the log") {
		t.Errorf("stderr %q", talk)
	}
	for i := range m.paths {
		raw, other := m.read(i), m.read((i+1)%len(m.paths))
		at := strings.Index(string(other), fmt.Sprint("order ", i+1))
		copy(raw[at:at+8], other[at:])
		m.write(i, raw)
	}
	report, _ := m.verify(exitOK)
	m.wantStates(report, "agrees agrees agrees")
	m.wantDump(5, 6)
}

func TestMembers_BadInput(t *testing.T) {
	for _, one := range []struct{ uri, want string }{
		{"members:2", "expected members:K"},
		{"members:x mem:/a mem:/b", "expected members:K"},
		{"members:3 mem:/a mem:/b", "expected members:K"},
		{"members:1 ofi:tcp://h:1 verbs:h:1", "expected --stream with the name"},
		{"members:1 fault:a fault:b", "expected mem:, nvme:, ofi:, verbs: or the path"},
	} {
		if _, talk, code := runFarlog(t, "verify", one.uri); code == exitOK || !strings.Contains(talk, one.want) ||
			strings.Count(talk, "\n") != 1 {
			t.Errorf("%s: exit code %d, stderr %q", one.uri, code, talk)
		}
	}
}
