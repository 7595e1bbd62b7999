//go:build cgo

package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/farlog"
)

// runTarget answers each line with one line, "ok ..." or "error ...":
//
//	serve NAME REGION TENANT
//	grant NAME TOKEN writer|drain|reader EPOCH
//	fence NAME EPOCH            ok TAIL-LSN
//	count NAME                  ok counter=value ...
//	forget NAME
//	attest FILE PATH            what the file says of the region at PATH, for rings served from now on
//	pause revocations DURATION  between the end of a key and that of its queue pair; with the hooks of fault tests alone
//
// The end of its input ends it.
func runTarget(uri string, in io.Reader, out io.Writer) error {
	target, err := farlog.OpenTarget(uri)
	if err != nil {
		return err
	}
	defer target.Close()
	fmt.Fprintf(out, "listening %s\n", target.URI())
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		answer, err := command(target, strings.Fields(lines.Text()))
		if err != nil {
			fmt.Fprintf(out, "error %v\n", err)
			continue
		}
		fmt.Fprintf(out, "ok %s\n", answer)
	}
	return lines.Err()
}

var roles = map[string]farlog.GrantRole{
	"writer": farlog.GrantWriter, "drain": farlog.GrantDrain,
	"reader": farlog.GrantReader,
}

func command(target *farlog.Target, words []string) (string, error) {
	if len(words) < 2 {
		return "", fmt.Errorf("%q: expected a command and what it is for", words)
	}
	name, rest := words[1], words[2:]
	switch {
	case words[0] == "serve" && len(rest) == 2:
		return "", target.Serve(name, rest[0], rest[1])
	case words[0] == "grant" && len(rest) == 3:
		return "", grant(target, name, rest)
	case words[0] == "fence" && len(rest) == 1:
		epoch, err := strconv.ParseUint(rest[0], 10, 32)
		if err != nil {
			return "", err
		}
		tail, err := target.Fence(name, uint32(epoch))
		return strconv.FormatUint(tail, 10), err
	case words[0] == "attest" && len(rest) == 1:
		return "", attest(target, name, rest[0])
	case words[0] == "forget" && len(rest) == 0:
		return "", target.Forget(name)
	case words[0] == "pause" && len(rest) == 1:
		pause, err := time.ParseDuration(rest[0])
		if err != nil {
			return "", err
		}
		return "", pauseRevocations(pause)
	case words[0] == "count" && len(rest) == 0:
		counters, err := target.Counters(name)
		if err != nil {
			return "", err
		}
		var all []string
		for _, counter := range counters.All() {
			all = append(all, fmt.Sprintf("%s=%d", counter.Name, counter.Value))
		}
		return strings.Join(all, " "), nil
	}
	return "", fmt.Errorf("%q: no such command", words)
}

// attest does what farlogd does with its --attestation.
func attest(target *farlog.Target, file, path string) error {
	list, err := config.ReadAttestations(file, []string{path})
	if err != nil {
		return err
	}
	for _, one := range list {
		// the file's words were checked
		said, _ := farlog.NewAttestation(one.How, one.PersistenceDomain, one.By, one.Date)
		said.IsAnyRead, said.CommitProvider = one.AnyReadFlushes, one.CommitFlushes
		if err := target.Attest("mem:"+one.Region, said); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func grant(target *farlog.Target, name string, words []string) error {
	token, err := parseToken(words[0])
	if err != nil {
		return err
	}
	role, isKnown := roles[words[1]]
	epoch, err := strconv.ParseUint(words[2], 10, 32)
	if err != nil || token == nil || !isKnown {
		return fmt.Errorf("grant %q: expected a token, writer, drain or reader, and an epoch", words)
	}
	return target.Grant(name, farlog.TargetGrant{Token: *token, Role: role, Epoch: uint32(epoch)})
}
