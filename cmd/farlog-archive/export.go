package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/audit/profiles"
	"github.com/farlog/farlog/cmd/internal/archivefs"
	"github.com/farlog/farlog/cmd/internal/progress"
	"github.com/farlog/farlog/cmd/internal/version"
	"github.com/farlog/farlog/pkg/archive"
	"github.com/farlog/farlog/pkg/export"
	"github.com/farlog/farlog/pkg/store"
)

const exportText = `Makes a bundle of the application's records that count and that all of --stream, --from, --to,
--class, --key and --filter select, in the directory DIR, which must not be there: the records as CSV, JSON Lines and
Parquet; the segments of the store that hold them, with the signed manifests that prove them; the GAP records; how
wrong the times of records may be; what was asked for and what is missing, on a page to print. farlog-verify checks a
bundle with nothing but the bundle.

A manifest signs a whole segment. So the evidence has whole segments, also with records that were not asked for.

STORE is the directory of a store, which may be written meanwhile, or an archive, s3://BUCKET/PREFIX.

--profile adds a report, report.csv, whose fields a mapping file takes from the records: one of those that are
shipped, by its name, or the path of another one. A required field without a source or a value is a failure.
--signing-key signs the bundle.`

// exportOptions are the flags of export.
type exportOptions struct {
	export.Options
	classes    []uint
	profile    string
	constants  []string
	signingKey string
}

func newExportCommand(env *environment) *cobra.Command {
	var o exportOptions
	command := &cobra.Command{
		Use:   "export STORE DIR --who WHO --why WHY",
		Short: "Make a bundle of records for an auditor, with what proves them", Long: exportText, Args: exactArgs(2),
		Example: `  farlog archive export data/store bundle --stream 'desk7/**' --from 2026-11-20T00:00:00Z \
    --to 2026-11-21T00:00:00Z --filter "'1' in fix && fix['1'] == 'ACC-7'" --profile fix-log \
    --signing-key compliance.key --who 'J. Doe' --why 'inquiry 2026-17'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(args[0]); err != nil {
				return err
			}
			return runExport(cmd.Context(), env, args[0], args[1], &o)
		},
	}
	flags, r := command.Flags(), &o.Request
	flags.StringArrayVar(&r.Streams, "stream", nil, "only of this stream: a `name`, or a pattern such as desk7/**; "+
		"several times: of any of them")
	flags.StringVar(&r.From, "from", "", "RFC 3339 `time` of the first record (default: the begin)")
	flags.StringVar(&r.To, "to", "", "RFC 3339 `time` to stop before (default: the end)")
	flags.UintSliceVar(&o.classes, "class", nil, "only of this `class`, or of these: 3,4")
	flags.StringArrayVar(&r.Keys, "key", nil, "only with this `key`, byte by byte; several times: with any of them")
	flags.StringVar(&r.Filter, "filter", "", "only those for which this `expression` of CEL is true")
	flags.StringVar(&o.profile, "profile", "", "add the report of a `profile`: "+strings.Join(profiles.Names(), ", ")+
		", or the path of a mapping file")
	flags.StringArrayVar(&o.constants, "constant", nil, "`NAME=VALUE` of a field of the profile whose source is "+
		"constant (repeatable)")
	flags.StringVar(&o.signingKey, "signing-key", "", "`file` with the private key that signs the bundle: Ed25519, "+
		"PKCS#8, PEM")
	flags.StringVar(&o.MadeBy, "who", "", "`name` of who asks for the records")
	flags.StringVar(&o.Why, "why", "", "`reason`")
	return command
}

// complete reads what the flags name.
func (o *exportOptions) complete(source string) (err error) {
	o.Program, o.Source = "farlog-archive "+version.Of(), source
	for _, class := range o.classes {
		if class > math.MaxUint16 {
			return &usageError{fmt.Sprintf("--class %d: expected a whole number from 0 to 65535", class)}
		}
		o.Request.Classes = append(o.Request.Classes, uint16(class))
	}
	for _, one := range o.constants {
		name, value, isPair := strings.Cut(one, "=")
		if _, isThere := o.Constants[name]; !isPair || isThere {
			return &usageError{fmt.Sprintf("--constant %q: expected NAME=VALUE, each name once", one)}
		}
		if o.Constants == nil {
			o.Constants = map[string]string{}
		}
		o.Constants[name] = value
	}
	if o.profile == "" && len(o.constants) > 0 {
		return &usageError{"--constant: expected --profile with it"}
	}
	if o.profile != "" {
		if o.Mapping, err = readMapping(o.profile); err != nil {
			return err
		}
	}
	if o.signingKey != "" {
		if o.Key, err = export.ReadKey(o.signingKey); err != nil {
			return fmt.Errorf("--signing-key: %w", err)
		}
	}
	return nil
}

// readMapping reads a mapping file: by a path, or one that is shipped.
func readMapping(name string) (*export.Mapping, error) {
	if !strings.Contains(name, "/") && !strings.HasSuffix(name, ".yaml") {
		raw, err := profiles.Read(name)
		if err != nil {
			return nil, &usageError{err.Error()}
		}
		return export.ParseMapping(name+".yaml", raw)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	return export.ParseMapping(name, raw)
}

func runExport(ctx context.Context, env *environment, source, dir string, o *exportOptions) error {
	opened, err := env.openToRead(ctx, source)
	if err != nil {
		return err
	}
	look, clear := progress.Line(env.stderr)
	o.Progress = func(p export.Progress) { look(p.Step, p.Done, p.Total) }
	began := time.Now()
	bundle, err := export.Export(ctx, opened, dir, o.Options)
	clear()
	if err != nil {
		return err
	}
	if env.isJSON() {
		return env.writeJSON(bundle)
	}
	fmt.Fprintf(env.stdout, "%s: %d records of %d streams, %d files\n", dir, bundle.Rows, len(bundle.Streams),
		len(bundle.Files)+2)
	for _, one := range bundle.Missing {
		fmt.Fprintf(env.stdout, "missing, or not proved: %s\n", one)
	}
	fmt.Fprintf(env.stderr, "done in %s\n", time.Since(began).Round(time.Millisecond))
	return nil
}

// openToRead opens the directory of a store, or an archive.
func (e *environment) openToRead(ctx context.Context, source string) (*store.Store, error) {
	if !archivefs.IsURL(source) {
		return store.Open(source, store.Options{})
	}
	location, err := archive.ParseLocation(source, e.endpoint, e.region)
	if err != nil {
		return nil, err
	}
	view, err := e.view(ctx, location)
	if err != nil {
		return nil, err
	}
	return store.Open(view.Dir(), store.Options{FS: view})
}
