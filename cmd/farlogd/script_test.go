package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/farlog/farlog/pkg/identity"
)

// Every wait of a script ends when it has looked stepLooks times and stepTimeout has passed; it is never what a script
// measures. A look is a program that runs: on a machine that is slower, or has other work, it takes as much longer as
// what it waits for.
const (
	stepTimeout = 30 * time.Second
	stepLooks   = 300
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"farlogd": main, "get": get}) }

// get prints what a URL answers: a program of its own, so that `until` can run it. With a second argument it shows the
// administrator's certificate in that directory.
func get() {
	client := http.DefaultClient
	if len(os.Args) > 2 {
		keeper, err := identity.NewKeeper(identity.In(os.Args[2], identity.KindAdmin), slog.Default())
		if err != nil {
			log.Fatal(err)
		}
		config, err := keeper.ClientConfig("127.0.0.1")
		if err != nil {
			log.Fatal(err)
		}
		client = &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	}
	response, err := client.Get(os.Args[1])
	if err == nil {
		_, err = io.Copy(os.Stdout, response.Body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestScript runs testdata/*.txtar with both programs as real processes. Commands of its own:
//
//	exits CODE program args…          run, and check the exit code
//	ready FILE PREFIX                 wait for a ready file, as long as its daemon runs; set PREFIX_CONTROL,
//	                                  PREFIX_METRICS, PREFIX_SERVE and PREFIX_PID
//	address NAME                      set NAME to an address at which daemons can listen one after another: the
//	                                  kernel gives its port to nobody else meanwhile
//	until REGEXP program args…        run again and again until stdout matches
//	refused REGEXP program args…      run again and again until stderr matches
//	get URL [DIR]                     print what it answers, to the administrator whose certificate is in DIR
func TestScript(t *testing.T) {
	bin := buildFarlog(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "ready": waitReady, "address": reserveAddress, "until": until, "refused": refused,
			"terminate": terminate,
		},
	})
}

// buildFarlog builds the command line of the same tree; the scripts drive the daemon through it.
func buildFarlog(t *testing.T) string {
	t.Helper()
	// go test keeps a result as long as what the test has opened is the same, and what go build opens is no part of it.
	for _, sources := range []string{"../farlog", "../../pkg", "../../rdma/src"} {
		err := filepath.WalkDir(sources, func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			t.Fatal(err)
		}
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(bin, "farlog"), "../farlog")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build farlog: %v\n%s", err, output)
	}
	return bin
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var failure *exec.ExitError
		if !errors.As(err, &failure) {
			ts.Fatalf("%v", err)
		}
		code = failure.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

func waitReady(ts *testscript.TestScript, _ bool, args []string) {
	path, daemon := ts.MkAbs(args[0]), starterOf(ts, args[0])
	for {
		// asked first: what it wrote before it ended counts
		hasEnded := errors.Is(syscall.Kill(daemon, 0), syscall.ESRCH)
		raw, err := os.ReadFile(path)
		if err == nil {
			var message ready
			ts.Check(json.Unmarshal(raw, &message))
			ts.Setenv(args[1]+"_CONTROL", message.Control)
			ts.Setenv(args[1]+"_METRICS", message.Metrics)
			ts.Setenv(args[1]+"_PID", fmt.Sprint(message.PID))
			ts.Setenv(args[1]+"_SERVE", message.Serve)
			return
		}
		if hasEnded {
			ts.Fatalf("the daemon ended before it wrote %s", path)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// starterOf is the process id of the last program in the background that was told to write a ready file.
func starterOf(ts *testscript.TestScript, file string) int {
	for _, started := range slices.Backward(ts.BackgroundCmds()) {
		if at := slices.Index(started.Args, "--ready-file"); at >= 0 && at+1 < len(started.Args) &&
			started.Args[at+1] == file {
			return started.Process.Pid
		}
	}
	ts.Fatalf("no program in the background writes %s", file)
	return 0
}

// reserveAddress binds a socket that never listens, and keeps it to the script's end: its port is then given to no
// connection and to nobody who asks for any port, and who names it can listen there, as a daemon does that is started
// again.
func reserveAddress(ts *testscript.TestScript, _ bool, args []string) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	ts.Check(err)
	ts.Defer(func() { _ = syscall.Close(socket) })
	ts.Check(syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	ts.Check(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := syscall.Getsockname(socket)
	ts.Check(err)
	ts.Setenv(args[0], fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port))
}

// terminate sends SIGTERM to a process id: the scripts' own kill knows no SIGTERM, and not every machine has a program
// kill.
func terminate(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(args[0])
	ts.Check(err)
	ts.Check(syscall.Kill(pid, syscall.SIGTERM))
}

func until(ts *testscript.TestScript, _ bool, args []string) { untilSaid(ts, "stdout", args) }

func refused(ts *testscript.TestScript, _ bool, args []string) { untilSaid(ts, "stderr", args) }

func untilSaid(ts *testscript.TestScript, where string, args []string) {
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	began := time.Now()
	for looks := 1; ; looks++ {
		_ = ts.Exec(args[1], args[2:]...) // its exit code may be a state that passes
		if output := ts.ReadFile(where); want.MatchString(output) {
			return
		} else if looks >= stepLooks && time.Since(began) > stepTimeout {
			ts.Fatalf("never matched %q; at last:\n%s", args[0], output)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
