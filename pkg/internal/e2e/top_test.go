package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// farlog top on a real terminal, with streams that are written and drained: each picture fits the screen, also after
// that has become smaller; q gives the terminal back. --once prints the same for programs.
func TestTop_OnATerminal(t *testing.T) {
	t.Parallel()
	cluster := testenv.NewCluster(t, testenv.MemoryDir(t))
	for i := range 8 {
		cluster.CreateStream(fmt.Sprintf("desk7/quiet%d", i), "--size", "1MiB", "--level", "visible")
	}
	cluster.CreateStream(streamName, "--size", "16MiB", "--level", "visible")
	w := startWriter(t, newLedger(t, "T"), 1, "--stream", streamName, "--control", cluster.ControlAddress, "--window",
		"8")
	defer w.kill()
	terminal := testenv.StartOnTerminal(t, 140, 24, "farlog", "top", "--control", cluster.ControlAddress, "--interval",
		"100ms", "--sort", "rate")
	defer func() {
		if t.Failed() {
			t.Logf("%q", lastFrame(t, terminal, 0, 0))
		}
	}()
	testenv.Until(t, "a picture shows the rate of the writer", func() (bool, error) {
		frame := lastFrame(t, terminal, 140, 24)
		return len(frame) > 3 &&
			regexp.MustCompile(`^desk7/orders +OK +[0-9.]+k? .*visible.* 1/1`).MatchString(frame[2]), nil
	})
	heads := regexp.MustCompile(`STREAM.*STATE.*REC/S.*P50.*P99.*P99\.9.*MAX.*STALLED.*LEVEL.*LAG.*RECORDS.*OLDEST.*` +
		`FULL IN.*RINGS`)
	if head := lastFrame(t, terminal, 140, 24)[1]; !heads.MatchString(head) {
		t.Errorf("heads: %q", head)
	}
	terminal.Resize(60, 6)
	testenv.Until(t, "the picture is smaller", func() (bool, error) {
		frame := lastFrame(t, terminal, 0, 0)
		return len(frame) == 6 && strings.Contains(frame[5], "and 6 more"), nil
	})
	lastFrame(t, terminal, 60, 6)
	if err := terminal.Press("q"); err != nil {
		t.Fatal(err)
	}
	if err := terminal.Wait(); err != nil {
		t.Errorf("q: %v", err)
	}
	testenv.Until(t, "the terminal is given back", func() (bool,
		error,
	) {
		return strings.HasSuffix(terminal.Shown(), "\x1b[?25h\x1b[?1049l"), nil
	})
	var answer struct {
		Streams []struct {
			Stream string
			Rate   float64 `json:"append_records_per_second"`
			Rings  int     `json:"rings_ready"`
		}
	}
	text := testenv.MustRun(t, "farlog", "top", "--once", "--sort", "rate", "--output", "json", "--control",
		cluster.ControlAddress)
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Streams) != 9 ||
		answer.Streams[0].Stream != streamName ||
		answer.Streams[0].Rate <= 0 || answer.Streams[0].Rings != 1 {
		t.Errorf("%v: %s", err, text)
	}
	if text := testenv.MustRun(t, "farlog", "top", "--once", "--control",
		cluster.ControlAddress); strings.Contains(text, "\x1b") || len(strings.Split(text, "\n")) < 11 {
		t.Errorf("--once: %q", text)
	}
}

var escapes = regexp.MustCompile("\x1b\\[[?0-9]*[a-zA-Z]")

// lastFrame is the last whole picture, without colours; with a size, no line may be longer and no more lines may be
// there.
func lastFrame(t *testing.T, terminal *testenv.Terminal, columns, rows int) []string {
	t.Helper()
	// A terminal makes each line's end one of its own.
	frames := strings.Split(strings.ReplaceAll(terminal.Shown(), "\r\r\n", "\r\n"), "\x1b[H")
	if len(frames) < 3 {
		return nil
	}
	frame := strings.Split(strings.TrimSuffix(escapes.ReplaceAllString(frames[len(frames)-2], ""), "\r\n"), "\r\n")
	if rows > 0 && len(frame) > rows {
		t.Fatalf("%d lines on a screen of %d", len(frame), rows)
	}
	for _, line := range frame {
		if columns > 0 && utf8.RuneCountInString(line) > columns {
			t.Fatalf("line of %d columns on a screen of %d: %q", utf8.RuneCountInString(line), columns, line)
		}
	}
	return frame
}
