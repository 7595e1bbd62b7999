package hostagent

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// safeBuffer is a log that several goroutines write.
type safeBuffer struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(p)
}

// A program that is refused again and again writes few lines into the agent's log, and hides nothing of others.
func TestRefused_LogIsLimited(t *testing.T) {
	log := new(safeBuffer)
	server := &Server{config: Config{Logger: slog.New(slog.NewTextHandler(log, nil))}}
	mallory, ada := peer{pid: 7, uid: 4294967290}, peer{pid: 8, uid: 4294967291}
	for range 10_000 {
		server.logOf(mallory, slog.LevelInfo, "refused", "error", strings.Repeat("x", 1000))
	}
	server.logOf(mallory, slog.LevelInfo, "granted")
	server.logOf(ada, slog.LevelInfo, "refused")
	if length := log.text.Len(); length > 20_000 {
		t.Fatalf("10,000 refusals are %d bytes of log", length)
	}
	for _, want := range []string{"msg=refused uid=4294967291 pid=8", "msg=granted uid=4294967290 pid=7"} {
		if !strings.Contains(log.text.String(), want) {
			t.Fatalf("log has no %q", want)
		}
	}
}

func TestRefused_LogIsLimitedThroughTheSocket(t *testing.T) {
	server, socket := start(t, granting)
	log := new(safeBuffer)
	server.config.Logger = slog.New(slog.NewTextHandler(log, nil))
	for range 200 {
		if answer := ask(t, socket, "nonsense"); !strings.HasPrefix(answer, "error") {
			t.Fatalf("answer %q", answer)
		}
	}
	if lines := strings.Count(log.text.String(), "msg=refused"); lines == 0 || lines > 20 {
		t.Fatalf("200 refusals are %d lines of log", lines)
	}
	if refused := server.Counts().Refused; refused != 200 {
		t.Fatalf("%d refusals are counted, expected 200", refused)
	}
}
