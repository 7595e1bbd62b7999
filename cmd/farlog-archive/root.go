package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/cmd/internal/reference"
	"github.com/farlog/farlog/cmd/internal/version"
	"github.com/farlog/farlog/pkg/archive"
	"github.com/farlog/farlog/pkg/config"
)

const rootText = `Keeps the sealed segments of a store in S3-compatible storage under Object Lock (COMPLIANCE), beside a
drain or a replica. An archive has the files of the store under the same names; a segment counts once its manifest is
there, which is put last.

Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN), else from the file
AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials (AWS_PROFILE), else from the role of the instance, unless
AWS_EC2_METADATA_DISABLED is true.`

// environment is what every command gets.
type environment struct {
	stdout, stderr io.Writer
	output         string

	archive, endpoint, region string
	callTimeout               time.Duration
	settings                  *config.Set
}

// configVariable names the file of settings where --config does not: FARLOG_CONFIG is that of farlog, which runs this
// program.
const configVariable = "FARLOG_ARCHIVE_CONFIG"

func newRootCommand(stdout, stderr io.Writer) *cobra.Command {
	env := &environment{stdout: stdout, stderr: stderr}
	root := &cobra.Command{
		Use: "farlog-archive", Short: "Keep a store in object storage, locked", Long: rootText,
		Version:      version.Of(),
		Annotations:  map[string]string{reference.ExitCodes: ",\n3 a probe that proves nothing"},
		SilenceUsage: true, SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return &usageError{fmt.Sprintf("unknown command %q: expected %s", args[0], names(cmd))}
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &usageError{"no command was given: expected " + names(cmd) + " (--help says more)"}
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultVersionFlag()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Sprintf("%s (%s --help lists the flags)", err, cmd.CommandPath())}
	})
	settings := config.New(root.PersistentFlags())
	env.settings = settings
	file := root.PersistentFlags().String("config", "", "YAML `file` of settings ("+configVariable+")")
	settings.String(&env.archive, "archive.url", "", "`where` the archive is: s3://BUCKET/PREFIX")
	settings.String(&env.endpoint, "archive.endpoint", "https://s3.amazonaws.com",
		"`URL` of the storage; http only to this host itself")
	settings.String(&env.region, "archive.region", "us-east-1", "`region` of the bucket, which requests are signed for")
	settings.Duration(&env.callTimeout, "archive.call-timeout", archive.CallTimeoutDefault,
		"longest wait for one call of the storage; each part of a large segment is one", aboveZero)
	root.PersistentFlags().StringVarP(&env.output, "output", "o", "", "output `format`: json (default: text)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if env.output != "" && env.output != "json" {
			return &usageError{fmt.Sprintf("--output %q: expected json", env.output)}
		}
		if cmd.Hidden {
			return nil
		}
		return settings.Load(cmp.Or(*file, os.Getenv(configVariable)), os.LookupEnv)
	}
	root.AddCommand(
		newExportCommand(
			env,
		),
		newHoldCommand(env),
		newProbeCommand(env),
		newRestoreCommand(env),
		newRetentionCommand(env),
		newRunCommand(env),
		newServeFilesCommand(env),
		newStatusCommand(env),
		newVerifyCommand(env),
		reference.NewCommand(stdout),
	)
	return root
}

func names(root *cobra.Command) string {
	var list []string
	for _, one := range root.Commands() {
		if !one.Hidden && one.Name() != "help" && one.Name() != "completion" {
			list = append(list, one.Name())
		}
	}
	return strings.Join(list, ", ")
}

func aboveZero(timeout time.Duration) error {
	if timeout <= 0 {
		return fmt.Errorf("%s: expected more than 0", timeout)
	}
	return nil
}

// location is the archive that the settings name.
func (e *environment) location() (archive.Location, error) {
	if e.archive == "" {
		return archive.Location{}, &usageError{"no archive was given: expected --archive-url s3://BUCKET/PREFIX"}
	}
	return archive.ParseLocation(e.archive, e.endpoint, e.region)
}

// open connects to it.
func (e *environment) open() (*archive.Bucket, error) {
	location, err := e.location()
	if err != nil {
		return nil, err
	}
	return archive.Open(archive.Options{Location: location, CallTimeout: e.callTimeout})
}

func (e *environment) isJSON() bool { return e.output == "json" }

func (e *environment) writeJSON(value any) error {
	encoder := json.NewEncoder(e.stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// exactArgs is cobra.ExactArgs as a usage error.
func exactArgs(count int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == count {
			return nil
		}
		return &usageError{fmt.Sprintf("got %d arguments, expected: %s", len(args), cmd.UseLine())}
	}
}
