package hostagent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// DeviceRule lets a user, or the members of a group, have a block device opened.
type DeviceRule struct {
	Device string // /dev/..., or a name that Find knows
	Rule   Rule
	Find   func() (path string, err error) // where it is now
}

// ParseDevices reads rules such as "/dev/nvme1n1=trading" and "nqn.2026-01.com.example:desk7/1=@desk7". find says where
// a namespace is that is named by subsystem and number; numbers in /dev change with every connection.
func ParseDevices(list []string, find func(name string) (path string, err error)) ([]DeviceRule, error) {
	var rules []DeviceRule
	for _, text := range list {
		at := strings.LastIndex(text, "=")
		if at <= 0 {
			return nil, fmt.Errorf("%q: expected DEVICE=USER or DEVICE=@GROUP, such as /dev/nvme1n1=trading", text)
		}
		device, name := text[:at], text[at+1:]
		who, err := parseRule(name + "=*")
		if err != nil {
			return nil, fmt.Errorf("%q: expected DEVICE=USER or DEVICE=@GROUP: %w", text, err)
		}
		rule := DeviceRule{Device: device, Rule: who, Find: func() (string, error) { return find(device) }}
		if strings.HasPrefix(device, "/") {
			if !isDevicePath(device) {
				return nil, fmt.Errorf("%q: expected a path such as /dev/nvme1n1", text)
			}
			rule.Find = func() (string, error) { return device, nil }
		} else if nqn, number, ok := strings.Cut(device, "/"); !ok || nqn == "" || number == "" {
			return nil, fmt.Errorf("%q: expected a path such as /dev/nvme1n1, or a subsystem and the number of its "+
				"namespace, NQN/1", text)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func isDevicePath(path string) bool {
	return strings.HasPrefix(path, "/dev/") && filepath.Clean(path) == path
}

// mayOpen decides whether somebody may have a device. Root and the agent's own user need no rule, and no agent either.
func mayOpen(rules []DeviceRule, p peer, path string) error {
	if p.uid == 0 || p.uid == uint32(os.Geteuid()) {
		return nil
	}
	var why []string
	for _, rule := range rules {
		isHis := !rule.Rule.IsGroup && rule.Rule.ID == p.uid || rule.Rule.IsGroup &&
			slices.Contains(p.groups(), rule.Rule.ID)
		if !isHis {
			continue
		}
		found, err := rule.Find()
		if err != nil {
			why = append(why, oneLine(err.Error()))
		} else if found == path {
			return nil
		}
	}
	text := ""
	if len(why) > 0 {
		text = "; " + strings.Join(why, "; ")
	}
	return refuse("INVALID", "%s may not have %s opened: expected a --host-device of farlogd host, such as %s=%d%s", p,
		path, path, p.uid, text)
}

// openDevice opens a block device for somebody who may have it. The locks of rings lie on open files: each request gets
// one of its own.
func (s *Server) openDevice(p peer, asked request) (*reply, error) {
	path, access := asked.values["path"], asked.values["access"]
	flags := map[string]int{"read": os.O_RDONLY, "write": os.O_RDWR}
	flag, isKnown := flags[access]
	if !isKnown {
		return nil, refuse("INVALID", "access %.20q: expected read or write", access)
	}
	if !isDevicePath(path) {
		return nil, refuse("INVALID", "path %.100q: expected a device such as /dev/nvme1n1", path)
	}
	if err := mayOpen(s.config.Devices, p, path); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeDevice {
		return nil, refuse("INVALID", "%s is no block device", path)
	}
	fd, err := syscall.Open(path, flag|syscall.O_DIRECT|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, refuse("IO", "the host agent cannot open %s: %s", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	var found syscall.Stat_t
	if err := syscall.Fstat(fd, &found); err != nil || found.Mode&syscall.S_IFMT != syscall.S_IFBLK {
		_ = file.Close()
		return nil, refuse("INVALID", "%s is no block device", path)
	}
	// Between the answer and the opening the name may have become another namespace's.
	if err := mayOpen(s.config.Devices, p, path); err != nil {
		_ = file.Close()
		return nil, err
	}
	s.logOf(p, slog.LevelInfo, "opened", "device", path, "access", access)
	made := newReply()
	made.file = file
	made.add("path", path)
	return made, nil
}
