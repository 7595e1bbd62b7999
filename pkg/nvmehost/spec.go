// Package nvmehost connects namespaces of NVMe over fabrics to this host, for rings on them: by the kernel's own
// interface, with times that suit a log that somebody waits for (docs/adr/0017). It needs root; nothing else of farlog
// does.
package nvmehost

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/nvmet"
)

// Transports that the kernel has and that farlog was run over.
var Transports = []string{"tcp", "rdma", "loop"}

// PortDefault is the one that is assigned to NVMe over fabrics.
const PortDefault = 4420

// Times of a connection. They are whole seconds: the kernel counts in these.
type Times struct {
	// how long a broken connection is tried again before its device goes; 0: the device goes at once
	CtrlLoss       time.Duration
	FastIOFail     time.Duration // how long commands wait for a broken connection; it counts when CtrlLoss is not 0
	ReconnectDelay time.Duration // between two tries; as FastIOFail
	KeepAlive      time.Duration // a peer that is silent for about twice this is gone
}

// TimesDefault: a connection that breaks takes its device along, and is noticed within some seconds.
var TimesDefault = Times{CtrlLoss: 0, FastIOFail: 0, ReconnectDelay: time.Second, KeepAlive: 2 * time.Second}

// Spec is one subsystem and the way to it.
type Spec struct {
	NQN           string
	Transport     string // of Transports
	Address       string // an IP address, none with loop
	Port          int    // 0 = PortDefault
	HostNQN       string // who this host is; "" = of /etc/nvme, else made of the machine's id
	HostID        string // the same as a UUID: reservations are kept by it
	HostInterface string // the network device to go out by; "" = as routed
	// has the key by which the target knows this host (DH-HMAC-CHAP), or both keys, as farlog target nvmet key writes
	// them; "" = none
	KeyFile     string
	CtrlKeyFile string // has the key by which this host knows the target; "" = it is believed
	PollQueues  int    // queues that are polled, in addition to the others
	Queues      int    // 0 = the kernel's choice, one for each processor
	Times       Times
}

// Check says what of a spec cannot be. It opens nothing.
func (s Spec) Check() error {
	if err := CheckNQN(s.NQN); err != nil {
		return fmt.Errorf("subsystem %w", err)
	}
	if !slices.Contains(Transports, s.Transport) {
		return fmt.Errorf("transport %q: expected one of %s", s.Transport, strings.Join(Transports, ", "))
	}
	if err := s.checkAddress(); err != nil {
		return err
	}
	if s.HostNQN != "" {
		if err := CheckNQN(s.HostNQN); err != nil {
			return fmt.Errorf("host %w", err)
		}
	}
	if s.HostID != "" && !isUUID(s.HostID) {
		return fmt.Errorf("host id %q: expected a UUID, such as 0f1e2d3c-4b5a-4697-8877-665544332211", s.HostID)
	}
	if (s.HostNQN == "") != (s.HostID == "") {
		return errors.New("expected a host's NQN and id, both or none: the target keeps them together")
	}
	if strings.Trim(s.HostInterface, nameLetters) != "" {
		return fmt.Errorf("host interface %q: expected the name of a network device, such as eth0", s.HostInterface)
	}
	if s.CtrlKeyFile != "" && s.KeyFile == "" {
		return errors.New("a key of the target without one of this host: expected both, or none")
	}
	if s.PollQueues < 0 || s.PollQueues > 1024 || s.Queues < 0 || s.Queues > 1024 {
		return fmt.Errorf("%d queues and %d polled ones: expected 0 to 1024 of each", s.Queues, s.PollQueues)
	}
	return s.Times.check()
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@:"

func (s Spec) checkAddress() error {
	if s.Transport == "loop" {
		if s.Address != "" || s.Port != 0 || s.HostInterface != "" {
			return errors.New("transport loop: expected no address: it is on this host")
		}
		return nil
	}
	if address, err := netip.ParseAddr(s.Address); err != nil || strings.Trim(address.Zone(), nameLetters) != "" {
		return fmt.Errorf("address %q: expected the target's IP address: the kernel looks no names up", s.Address)
	}
	if s.Port < 0 || s.Port > 65535 {
		return fmt.Errorf("port %d: expected 1 to 65535", s.Port)
	}
	return nil
}

func (t Times) check() error {
	for _, one := range []struct {
		name        string
		value, most time.Duration
		least       time.Duration
	}{
		{"ctrl-loss", t.CtrlLoss, 60 * time.Second, 0},
		{"fast-io-fail", t.FastIOFail, 60 * time.Second, 0},
		{"reconnect-delay", t.ReconnectDelay, 60 * time.Second, time.Second},
		{"keep-alive", t.KeepAlive, 60 * time.Second, time.Second},
	} {
		if one.value%time.Second != 0 || one.value < one.least || one.value > one.most {
			return fmt.Errorf("%s %s: expected whole seconds from %s to %s; the longer, the later a writer learns "+
				"that its target is gone", one.name, one.value, one.least, one.most)
		}
	}
	if t.CtrlLoss != 0 && t.FastIOFail > t.CtrlLoss {
		return fmt.Errorf("fast-io-fail %s: expected no more than ctrl-loss, %s", t.FastIOFail, t.CtrlLoss)
	}
	return nil
}

// CheckNQN takes the name of a subsystem or host that fits into the kernel's line: a comma would begin another word of
// it.
func CheckNQN(nqn string) error {
	if err := nvmet.CheckNQN(nqn); err != nil {
		return err
	}
	if strings.ContainsFunc(nqn, func(r rune) bool {
		return r <= ' ' || r == 0x7F || r == ',' || r == '"' || r == '\'' || r == '\\'
	}) {
		return fmt.Errorf("NQN %q: expected no comma, quote, backslash or control character", nqn)
	}
	return nil
}

func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, r := range text {
		isDash := i == 8 || i == 13 || i == 18 || i == 23
		if isDash != (r == '-') || !isDash && !strings.ContainsRune("0123456789abcdefABCDEF", r) {
			return false
		}
	}
	return true
}

func (s Spec) port() int {
	if s.Port == 0 {
		return PortDefault
	}
	return s.Port
}

// option is one word of the kernel's line, and what nvme-cli has for it.
type option struct {
	word  string
	flag  string // with what parts it from the value
	value string // "" = left to the kernel
}

// options are all but the keys, in the order of the line.
func (s Spec) options() []option {
	options := []option{{"nqn", "-n ", s.NQN}, {"transport", "-t ", s.Transport}}
	if s.Transport != "loop" {
		options = append(options, option{"traddr", "-a ", s.Address}, option{"trsvcid", "-s ", strconv.Itoa(s.port())})
	}
	options = append(options, option{"hostnqn", "-q ", s.HostNQN}, option{"hostid", "-I ", s.HostID},
		option{"host_iface", "--host-iface=", s.HostInterface},
		option{"nr_io_queues", "--nr-io-queues=", count(s.Queues)},
		option{"nr_poll_queues", "--nr-poll-queues=", count(s.PollQueues)})
	if s.Transport == "loop" {
		return options // it never breaks by itself; there the kernel knows no such times
	}
	return append(options, option{"ctrl_loss_tmo", "--ctrl-loss-tmo=", seconds(s.Times.CtrlLoss)},
		option{"reconnect_delay", "--reconnect-delay=", seconds(s.Times.ReconnectDelay)},
		// nvme-cli has it with underscores alone
		option{"fast_io_fail_tmo", "--fast_io_fail_tmo=", seconds(s.Times.FastIOFail)},
		option{"keep_alive_tmo", "--keep-alive-tmo=", seconds(s.Times.KeepAlive)})
}

// fields are those of the kernel's line, without keys.
func (s Spec) fields() []string {
	var words []string
	for _, o := range s.options() {
		if o.value != "" {
			words = append(words, o.word+"="+o.value)
		}
	}
	return words
}

// Command is what does the same with nvme-cli. The keys stay in their files.
func (s Spec) Command() string {
	words := []string{"nvme connect"}
	for _, o := range s.options() {
		if o.value != "" {
			words = append(words, o.flag+o.value)
		}
	}
	return strings.Join(append(words, s.keyFields()...), " ")
}

// count is "" for the kernel's choice.
func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
