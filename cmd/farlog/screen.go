package main

import (
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/cmd/internal/output"
)

// screenSize is in characters.
type screenSize struct{ columns, rows int }

// sizeUnknown is that of a terminal which does not tell.
var sizeUnknown = screenSize{columns: 80, rows: 24}

const (
	screenEnter = "\x1b[?1049h\x1b[?25l" // the other screen, without a cursor
	screenLeave = "\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	lineClear   = "\x1b[K"
	restClear   = "\x1b[J"
)

// screen is a terminal that one program fills.
type screen struct {
	output *os.File
	input  *os.File      // nil: no keys are received
	before *unix.Termios // of the input
	quit   chan struct{} // closed when q is pressed
	leave  sync.Once
}

// openScreen takes the terminal, if it is one.
func openScreen(env *environment) (*screen, bool) {
	terminal, ok := output.File(env.stdout)
	if !ok || !isTerminal(terminal) {
		return nil, false
	}
	s := &screen{output: terminal, quit: make(chan struct{})}
	if input, ok := env.stdin.(*os.File); ok {
		s.readKeys(input)
	}
	_, _ = io.WriteString(terminal, screenEnter)
	return s, true
}

// readKeys makes the terminal give each key at once, and listens for q.
func (s *screen) readKeys(input *os.File) {
	before, err := unix.IoctlGetTermios(int(input.Fd()), unix.TCGETS)
	if err != nil {
		return // no terminal
	}
	each := *before
	each.Lflag &^= unix.ICANON | unix.ECHO
	each.Cc[unix.VMIN], each.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(int(input.Fd()), unix.TCSETS, &each) != nil {
		return
	}
	s.input, s.before = input, before
	go func() {
		key := make([]byte, 1)
		for {
			if _, err := input.Read(key); err != nil || key[0] == 'q' {
				close(s.quit)
				return
			}
		}
	}()
}

func (s *screen) size() screenSize {
	size, err := unix.IoctlGetWinsize(int(s.output.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return sizeUnknown
	}
	return screenSize{columns: int(size.Col), rows: int(size.Row)}
}

// draw puts lines over those that are there, in one write: nothing flickers. A line is cleared before it is written:
// behind one that is as long as the screen the cursor still stands on its last character. The last line has no end, so
// that nothing rolls.
func (s *screen) draw(lines []string) error {
	_, err := io.WriteString(s.output, screenHome+lineClear+strings.Join(lines, "\r\n"+lineClear)+clearBelow(len(lines),
		s.size()))
	return err
}

// clearBelow takes away what an earlier picture has left under this one.
func clearBelow(count int, size screenSize) string {
	if count >= size.rows {
		return ""
	}
	return "\r\n" + restClear
}

// close gives the terminal back as it was.
func (s *screen) close() {
	s.leave.Do(func() {
		_, _ = io.WriteString(s.output, screenLeave)
		if s.before != nil {
			_ = unix.IoctlSetTermios(int(s.input.Fd()), unix.TCSETS, s.before)
		}
	})
}
