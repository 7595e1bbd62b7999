package nvmehost

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// Error of a connection that could not be made. Reason is one of those below, for who wants to tell them apart.
type Error struct {
	NQN    string
	Reason error
	text   string
}

func (e *Error) Error() string { return fmt.Sprintf("connect subsystem %s: %s", e.NQN, e.text) }
func (e *Error) Unwrap() error { return e.Reason }

// Why a connection could not be made.
var (
	ErrNotAllowed  = errors.New("the subsystem does not let this host in")
	ErrNoSubsystem = errors.New("no such subsystem")
	ErrKey         = errors.New("wrong key")
	ErrUnreachable = errors.New("nothing answers there")
	ErrMissing     = errors.New("the kernel lacks it")
	ErrRights      = errors.New("only root may")
	ErrMultipath   = errors.New("it would be a second path")
	ErrOther       = errors.New("refused")
)

// kernelLog reads what the kernel says after it was opened. Without the right to it, nothing.
type kernelLog struct{ file *os.File }

func (k Kernel) openLog() kernelLog {
	// Not by way of the runtime's poller: the device answers EPIPE for lines that were overwritten, and EAGAIN at its
	// end.
	fd, err := syscall.Open(filepath.Join(k.Root, "/dev/kmsg"), syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC,
		0)
	if err != nil {
		return kernelLog{}
	}
	if _, err := syscall.Seek(fd, 0, 2); err != nil {
		_ = syscall.Close(fd)
		return kernelLog{}
	}
	return kernelLog{os.NewFile(uintptr(fd), "kmsg")}
}

// close returns what was said, without the records' prefixes.
func (l kernelLog) close() string {
	if l.file == nil {
		return ""
	}
	defer l.file.Close()
	var said strings.Builder
	record := make([]byte, 8192)
	for range 1000 {
		count, err := syscall.Read(int(l.file.Fd()), record)
		if errors.Is(err, syscall.EPIPE) {
			continue
		}
		if err != nil || count == 0 {
			break
		}
		_, text, _ := bytes.Cut(record[:count], []byte(";"))
		line, _, _ := bytes.Cut(text, []byte("\n"))
		if bytes.Contains(line, []byte("nvme")) && !bytes.Contains(line, []byte("nvmet")) {
			said.Write(line)
			said.WriteByte('\n')
		}
	}
	return said.String()
}

// timedOut is what the transports say of a command on the queue of the connection.
var timedOut = regexp.MustCompile(`I/O (tag )?[0-9]+ .*timeout`)

var unknownWord = regexp.MustCompile(`unknown parameter or missing value '([a-z_]+)`)

// explain makes of the kernel's error and words which of the reasons it is, and what to do.
func (s Spec) explain(err error, said string) *Error {
	at := s.Transport
	if s.Address != "" {
		at += fmt.Sprintf(" %s port %d", s.Address, s.port())
	}
	explained := func(reason error, format string, args ...any) *Error {
		return &Error{NQN: s.NQN, Reason: reason, text: fmt.Sprintf(format, args...)}
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(said, word) })
	}
	word := unknownWord.FindStringSubmatch(said)
	hasAuth := has("authentication", "auth_send", "auth_receive", "DH-HMAC-CHAP", "dhchap")
	isLate := errors.Is(err, syscall.ETIMEDOUT) || timedOut.MatchString(said)
	switch {
	case errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM):
		return explained(ErrRights, "%v: only root may connect namespaces", err)
	case word != nil && strings.HasPrefix(word[1], "dhchap"):
		return explained(ErrMissing, "this kernel was built without keys of NVMe over fabrics "+
			"(CONFIG_NVME_HOST_AUTH): connect without a key, or boot one that has them")
	case word != nil:
		return explained(ErrMissing, "this kernel does not know the word %s", word[1])
	case has("no handler found for transport"):
		return explained(ErrMissing, "the kernel has no transport %s: modprobe nvme-%s", s.Transport, s.Transport)
	case has("is not allowed, hostnqn"), errors.Is(err, syscall.Errno(0)) && has("not allowed"):
		return explained(ErrNotAllowed, "host NQN %s is not allowed at %s: have it added to the subsystem's hosts",
			s.HostNQN, at)
	case has("Connect Invalid Data Parameter, subsysnqn"):
		return explained(ErrNoSubsystem, "%s has no subsystem of this name, or does not offer it on this port", at)
	case has("authentication required", "qid 0: no key"):
		return explained(ErrKey, "%s wants a key (DH-HMAC-CHAP), and none was given", at)
	case hasAuth && isLate: // a refusal may be told by nothing else
		return explained(ErrKey, "%s does not accept the key of host NQN %s (DH-HMAC-CHAP), or did not answer while "+
			"keys were compared: look whether the target lives, then compare the keys of both ends", at, s.HostNQN)
	case hasAuth || errors.Is(err, syscall.EKEYREJECTED):
		return explained(ErrKey, "%s does not accept the key of host NQN %s (DH-HMAC-CHAP), or is not the one that "+
			"it should be: compare the keys of both ends", at, s.HostNQN)
	}
	return s.explainRest(err, said, at)
}

// unreachable are the errors of a network, as the transports put them into their lines.
var unreachable = []struct {
	errno syscall.Errno
	text  string
}{
	{syscall.ECONNREFUSED, "nothing listens there"},
	{syscall.ETIMEDOUT, "no answer"},
	{syscall.EHOSTUNREACH, "no such host on the network"},
	{syscall.ENETUNREACH, "no route to it"},
	{syscall.ENODEV, "no device of this host leads there"},
	{syscall.EADDRNOTAVAIL, "no device of this host leads there"},
	{syscall.ECONNRESET, "what listens there ended the connection: another protocol, or the target is stopping"},
}

func (s Spec) explainRest(err error, said, at string) *Error {
	for _, one := range unreachable {
		if errors.Is(err, one.errno) || strings.Contains(said, fmt.Sprintf(": -%d\n", int(one.errno))) ||
			strings.Contains(said, fmt.Sprintf("(-%d)", int(one.errno))) {
			return &Error{NQN: s.NQN, Reason: ErrUnreachable, text: fmt.Sprintf("%s: %s", at, one.text)}
		}
	}
	text := fmt.Sprintf("%s: %v", at, err)
	if lines := strings.Split(strings.TrimSpace(said), "\n"); lines[0] != "" {
		text += "; the kernel says: " + lines[0]
	} else {
		text += "; dmesg may say why"
	}
	return &Error{NQN: s.NQN, Reason: ErrOther, text: text}
}
