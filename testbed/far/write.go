//go:build cgo

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

const resolveDeadline = 500 * time.Millisecond

// runWriter appends what comes on standard input and prints one line for each record, in their order:
//
//	EPOCH SEQ LSN LEVEL ACK-US STALL-US COPIES   acknowledged
//	unknown EPOCH LSN ACK-US STALL-US            may or may not be there; followed, once that is known, by a line of its
//
// own: 	resolved EPOCH SEQ LSN LEVEL                 it is there;  or  absent EPOCH LSN
//
//	fenced EPOCH ACK-US STALL-US                 was not written, nor was what was submitted with it; the end
//	full ACK-US STALL-US                         was not written
//
// ACK-US is how long the call took by this machine's clock, STALL-US for how much of that a processor of this machine
// stood still.
//
// An outcome that is not known within patience ends it; 0: never.
func runWriter(uri string, options farlog.WriterOptions, batch int, patience time.Duration) error {
	writer, err := farlog.OpenWriter(uri, options)
	if err != nil {
		return err
	}
	contract := writer.Contract()
	fmt.Fprintf(os.Stderr, "contract %s\n", contract.Probe)
	fmt.Fprintf(os.Stderr, "open %s flush=%s level=%s recovered_tail=%d\n", contract.Kind, contract.FlushMethod,
		contract.Level,
		writer.Recovery().TailLSN)
	out := bufio.NewWriter(os.Stdout)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	err = writeAll(writer, in, out, batch, patience)
	return errors.Join(err, out.Flush(), writer.Close())
}

func writeAll(writer *farlog.Writer, in *bufio.Reader, out *bufio.Writer, batch int, patience time.Duration) error {
	positions, stood := make([]farlog.Position, batch), watchStalls()
	for {
		entries, err := readEntries(in, batch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := appendOne(writer, stood, entries, positions, out, patience); err != nil {
			return err
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// readEntries waits for one record and takes what is there beside it.
func readEntries(in *bufio.Reader, most int) ([]farlog.Entry, error) {
	var entries []farlog.Entry
	for len(entries) < most && (len(entries) == 0 || in.Buffered() > 0) {
		var prefix [4]byte
		if _, err := io.ReadFull(in, prefix[:]); err != nil {
			return entries, err
		}
		data := make([]byte, binary.LittleEndian.Uint32(prefix[:]))
		if _, err := io.ReadFull(in, data); err != nil {
			return entries, err
		}
		entries = append(entries, farlog.Entry{Data: data})
	}
	return entries, nil
}

func appendOne(writer *farlog.Writer, stood *stalls, entries []farlog.Entry, positions []farlog.Position,
	out *bufio.Writer, patience time.Duration,
) error {
	for len(entries) > 0 {
		began, before := time.Now(), stood.now()
		done, submitted, err := writer.AppendBatch(entries, 0, positions[:len(entries)])
		took := fmt.Sprint(time.Since(began).Microseconds(), stood.sinceUS(before))
		for _, p := range positions[:done] {
			fmt.Fprintf(out, "%d %d %d %s %s %d\n", p.Epoch, p.Seq, p.LSN, p.Level, took, p.Copies)
		}
		if errors.Is(err, farlog.ErrFenced) {
			fmt.Fprintf(os.Stderr, "trouble: %s\n", writer.Trouble())
			fmt.Fprintf(out, "fenced %d %s\n", writer.Cursors().Epoch, took)
			return err
		}
		for _, p := range positions[done:submitted] {
			fmt.Fprintf(out, "unknown %d %d %s\n", p.Epoch, p.LSN, took)
			if err := resolve(writer, p, out, patience); err != nil {
				return err
			}
		}
		entries = entries[submitted:]
		switch {
		case err == nil || errors.Is(err, farlog.ErrUnknown):
		case errors.Is(err, farlog.ErrFull):
			fmt.Fprintf(out, "full %s\n", took)
		default:
			return err
		}
	}
	return nil
}

// resolve asks until it is known. A writer that was fenced meanwhile may learn that the record is not there, and hears
// of the fence at its next append.
func resolve(writer *farlog.Writer, p farlog.Position, out *bufio.Writer, patience time.Duration) error {
	if err := out.Flush(); err != nil {
		return err
	}
	began := time.Now()
	for {
		found, err := writer.Resolve(p.LSN, resolveDeadline)
		switch {
		case err == nil:
			_, err = fmt.Fprintf(out, "resolved %d %d %d %s\n", found.Epoch, found.Seq, found.LSN, found.Level)
			return err
		case errors.Is(err, farlog.ErrUnknown) && (patience == 0 || time.Since(began) < patience):
		case errors.Is(err, farlog.ErrFenced):
			_, err = fmt.Fprintf(out, "absent %d %d\n", p.Epoch, p.LSN)
			return err
		default:
			return fmt.Errorf("resolve lsn %d: %w", p.LSN, err)
		}
	}
}
