package doctor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/keeper"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// What chronyc 4.3 of Debian 12 and pmc 3.1 print, but for the numbers.
const (
	chronyKept = "A29FC801,162.159.200.1,4,1795367425.199130453,-0.000012500,0.000010100,0.000020000," +
		"-12.345,0.001,0.034,0.000080000,0.000040000,64.2,Normal"
	chronyFree = "00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000," +
		"1.000000000,1.000000000,0.0,Not synchronised"
	ptpKept = "sending: GET CURRENT_DATA_SET\n\t507c6f.fffe.1fb0c1-0 seq 0 RESPONSE MANAGEMENT CURRENT_DATA_SET " +
		"\n\t\tstepsRemoved     1\n\t\toffsetFromMaster -250000.0\n\t\tmeanPathDelay    1230.0"
)

func TestClockOffset_SaysWhoToldIt(t *testing.T) {
	missing := fmt.Errorf("exec: %w", exec.ErrNotFound)
	failed := errors.New("exit status 1")
	for _, test := range []struct {
		name        string
		chrony, ptp string
		noChrony    error
		noPTP       error
		state       State
		text        string
	}{
		{"chrony", chronyKept, "", nil, missing, OK, "chrony says that it is off by 12.5 us, at most 92.5 us"},
		{"chrony before ptp4l", chronyKept, ptpKept, nil, nil, OK, "chrony says"},
		{"chrony that follows nobody", chronyFree, "", nil, missing, Warn, "chrony runs and follows nobody"},
		{
			"chrony far off", strings.Replace(chronyKept, "-0.000012500", "0.5", 1), "", nil, missing, Warn,
			"off by 5e+05 us",
		},
		{"another chrony", "a,b", "", nil, missing, Warn, `chronyc says "a,b": expected 14 fields`},
		{
			"words for numbers", strings.Replace(chronyKept, "0.000080000", "long", 1), "", nil, missing, Warn,
			"expected a number of seconds in field 11",
		},
		{
			"ptp4l", "506 Cannot talk to daemon", ptpKept, failed, nil, Warn,
			"ptp4l says that it is off by 250 us; RTS 25",
		},
		{
			"ptp4l alone", "", strings.Replace(ptpKept, "-250000.0", "25.0", 1), missing, nil, OK,
			"ptp4l says that it is off by 0.025 us",
		},
		{
			"both silent", "506 Cannot talk to daemon", "sending: GET CURRENT_DATA_SET", failed, nil, Warn,
			"chronyc: 506 Cannot talk to daemon exit status 1; pmc: no ptp4l answers",
		},
		{"neither", "", "", missing, missing, Warn, "neither chronyc nor pmc is on this host"},
	} {
		got := clockOffset(func(name string, _ ...string) (string, error) {
			if name == "chronyc" {
				return test.chrony, test.noChrony
			}
			return test.ptp, test.noPTP
		})
		if got.State != test.state || !strings.Contains(got.Reason, test.text) || got.State != OK && got.Remedy == "" {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

// A real chronyd that may not touch the clock is asked by a real chronyc.
func TestClockOffset_OfRealChrony(t *testing.T) {
	daemon, client := testenv.DebianProgram(t, "chrony", "sbin", "chronyd"),
		testenv.DebianProgram(t, "chrony", "bin", "chronyc")
	if err := exec.Command(daemon, "--version").Run(); err != nil {
		t.Skipf("%s does not run: %v: its libraries are libgnutls30, libnettle8 and libseccomp2", daemon, err)
	}
	dir, err := os.MkdirTemp("", "farlog-chrony-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, config := filepath.Join(dir, "s"), filepath.Join(dir, "c")
	text := fmt.Sprintf("local stratum 8\ncmdport 0\nport 0\nbindcmdaddress %s\npidfile %s/pid\n", socket, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	chronyd := exec.Command(daemon, "-x", "-d", "-U", "-u", "root", "-f", config)
	if err := chronyd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = chronyd.Process.Kill(); _ = chronyd.Wait() })
	asking := func(name string, args ...string) (string, error) {
		if name != "chronyc" {
			return "", exec.ErrNotFound
		}
		return keeper.Run(client, append([]string{"-h", socket}, args...)...)
	}
	var got Finding
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got = clockOffset(asking); got.State == OK {
			break
		}
	}
	if got.State != OK || !strings.Contains(got.Reason, "chrony says that it is off by 0 us") {
		t.Errorf("%+v", got)
	}
}
