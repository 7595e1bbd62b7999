package doctor

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	askTimeout       = 3 * time.Second
	chronyFields     = 14 // of chronyc -c tracking, chrony 4
	unsynchronised   = "Not synchronised"
	clockOffsetCheck = "clock offset"
)

// ask runs a program that only tells something. errors.Is(err, exec.ErrNotFound): it is not on this host.
type ask func(name string, args ...string) (said string, err error)

func run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	said, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return strings.TrimSpace(string(said)), err
}

// clockOffset asks who keeps the clock how far it is off: chrony, else ptp4l. The kernel's own word is another finding.
func clockOffset(ask ask) Finding {
	said, chrony := ask("chronyc", "-n", "-c", "tracking")
	if chrony == nil {
		return chronyFinding(said)
	}
	told, ptp := ask("pmc", "-u", "-b", "0", "GET CURRENT_DATA_SET")
	if ptp == nil {
		if offset, isThere := ptpOffset(told); isThere {
			return offsetFinding("ptp4l", offset, "")
		}
		ptp = errors.New("no ptp4l answers")
	}
	if errors.Is(chrony, exec.ErrNotFound) && errors.Is(ptp, exec.ErrNotFound) {
		return Finding{clockOffsetCheck, Warn, "neither chronyc nor pmc is on this host: nobody can be asked how far the clock is off", "apt install chrony, or linuxptp"}
	}
	var why []string
	for _, one := range []struct {
		name, said string
		err        error
	}{{"chronyc", said, chrony}, {"pmc", "", ptp}} {
		if !errors.Is(one.err, exec.ErrNotFound) {
			why = append(why, one.name+": "+strings.Join(append(strings.Fields(one.said), one.err.Error()), " "))
		}
	}
	return Finding{clockOffsetCheck, Warn, "who keeps the clock does not tell: " + strings.Join(why, "; "), "systemctl status chrony ptp4l"}
}

// chronyFinding reads a line of chronyc -c tracking: the fields of chronyc tracking, in its order, with commas between.
func chronyFinding(said string) Finding {
	fields := strings.Split(said, ",")
	if len(fields) < chronyFields {
		return Finding{clockOffsetCheck, Warn, fmt.Sprintf("chronyc says %.60q: expected %d fields", said, chronyFields), "chronyc tracking"}
	}
	var seconds [3]float64 // system time, root delay, root dispersion
	for i, at := range []int{4, 10, 11} {
		value, err := strconv.ParseFloat(fields[at], 64)
		if err != nil {
			return Finding{clockOffsetCheck, Warn, fmt.Sprintf("chronyc says %.60q: expected a number of seconds in field %d", said, at+1), "chronyc tracking"}
		}
		seconds[i] = max(value, -value)
	}
	if fields[13] == unsynchronised {
		return Finding{clockOffsetCheck, Warn, "chrony runs and follows nobody", "chronyc sources says whom it tries"}
	}
	bound := seconds[0] + seconds[2] + seconds[1]/2 // chronyc(1), tracking
	return offsetFinding("chrony", seconds[0], fmt.Sprintf(", at most %.3g us with its way to the source", 1e6*bound))
}

var ptpOffsetLine = regexp.MustCompile(`(?m)^\s*offsetFromMaster\s+(-?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*$`)

// ptpOffset reads nanoseconds from pmc's CURRENT_DATA_SET. False: nobody answered, or no clock that follows another one.
func ptpOffset(said string) (seconds float64, isThere bool) {
	found := ptpOffsetLine.FindStringSubmatch(said)
	if found == nil {
		return 0, false
	}
	value, err := strconv.ParseFloat(found[1], 64)
	return max(value, -value) / 1e9, err == nil
}

func offsetFinding(source string, seconds float64, more string) Finding {
	text := fmt.Sprintf("%s says that it is off by %.3g us%s", source, 1e6*seconds, more)
	if 1e6*seconds > clockErrorMax {
		return Finding{clockOffsetCheck, Warn, text + fmt.Sprintf("; RTS 25 asks for %d us of high-frequency trading", clockErrorMax), "chronyc sources, or pmc -u -b 0 'GET TIME_STATUS_NP'"}
	}
	return Finding{clockOffsetCheck, OK, text, ""}
}
