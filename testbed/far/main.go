//go:build cgo

// Command far is the testbed's hand on far rings: a target that does what it is told line by line, a writer that tells
// the outcome of every append. It stands on the public surface alone; what farlogd and farlog do with it over the
// control plane is not asked for here, so that a scenario can do what a control plane never would.
//
//	far target URI                                 commands on standard input, see target.go
//	far format -size N -align N -salt N URI        a ring as other members of its stream have it
//	far drain -store DIR URI                       prints "drained LSN", see drain.go
//	far write -token HEX -epoch N URI              length-prefixed records on standard input, see write.go
//	far write -grant FILE                          the same, by what farlog stream grant has written
//
// The tokens of a stream with several members are parted by commas, in the order of its rings; that of one that needs
// none is "-".
package main

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/farlog/farlog/pkg/farlog"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "far: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("expected target, format, drain or write")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	tokenText := flags.String("token", "", "`hex` of the grant's token")
	grantFile := flags.String("grant", "", "`file` of farlog stream grant, in place of a URI")
	wait := flags.String("wait", "",
		"`spin` or block, of a writer with -grant for what its devices answer (\"\": as the library does)")
	salt := flags.Uint64("salt", 0, "of the ring (0: random)")
	size := flags.Uint64("size", 0, "`bytes` of the ring with its header (0: the device's)")
	align := flags.Uint("align", 0, "of records")
	epoch := flags.Uint("epoch", 0, "epoch of the grant")
	deadline := flags.Duration("deadline", 0, "of each append (0: the contract's)")
	patience := flags.Duration("patience", 0, "within which an outcome has to be known (0: for ever)")
	isVisible := flags.Bool("visible", false, "acknowledge what is in memory")
	batch := flags.Int("batch", 1, "records of one flush")
	storeDir := flags.String("store", "", "`folder` of a drain's store")
	_ = flags.Parse(args[1:])
	if (flags.NArg() != 1) == (*grantFile == "") {
		return fmt.Errorf("%s: expected one URI, or -grant", args[0])
	}
	uri := flags.Arg(0)
	own, err := readTokens(*tokenText)
	if err == nil && *grantFile != "" {
		uri, own, err = readGrant(*grantFile)
		uri = waiting(uri, *wait)
	}
	if err != nil {
		return err
	}
	own.epoch = max(own.epoch, uint32(*epoch))
	level := farlog.Level(0)
	if *isVisible {
		level = farlog.LevelVisible
	}
	switch args[0] {
	case "target":
		return runTarget(uri, os.Stdin, os.Stdout)
	case "drain":
		return runDrain(uri, own, *storeDir)
	case "format":
		return farlog.Format(uri, farlog.FormatOptions{
			SizeBytes: *size, Align: uint32(*align), Salt: *salt,
			StreamName: "desk/orders", Force: true,
		})
	case "write":
		return runWriter(uri, farlog.WriterOptions{
			Level: level, Epoch: own.epoch, Deadline: *deadline,
			Token: own.token, Members: own.members, Name: "far write",
		}, *batch, *patience)
	}
	return fmt.Errorf("%s: expected target, drain or write", args[0])
}

// parseToken gives nil for "".
func parseToken(text string) (*[farlog.TokenLen]byte, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 0 && len(raw) != farlog.TokenLen {
		return nil, fmt.Errorf("token %q: expected %d hexadecimal digits", text, 2*farlog.TokenLen)
	}
	if len(raw) == 0 {
		return nil, nil
	}
	return (*[farlog.TokenLen]byte)(raw), nil
}
