// Command image makes an OCI image of layers, as a folder in the OCI image layout: by bytes and settings that it is
// given, and nothing of the machine. It is a module of its own, so that its library is none of farlog's.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// options of an image. All are required.
type options struct {
	name, version string
	architecture  string
	user          string // UID:GID
	entrypoint    string
	volume        string
	created       time.Time
	layers        []string // tar files that gzip has compressed, the lowest first
}

func main() {
	var o options
	var seconds int64
	out := flag.String("out", "", "`folder` to make")
	flag.StringVar(&o.name, "name", "", "of the image, for its labels")
	flag.StringVar(&o.version, "version", "", "of farlog")
	flag.StringVar(&o.architecture, "arch", "", "as Debian calls it: amd64, arm64")
	flag.StringVar(&o.user, "user", "", "`UID:GID` of its processes")
	flag.StringVar(&o.entrypoint, "entrypoint", "", "program that it runs")
	flag.StringVar(&o.volume, "volume", "", "folder of what it keeps")
	flag.Int64Var(&seconds, "created", 0, "time of all, in seconds since 1970")
	flag.Parse()
	o.created, o.layers = time.Unix(seconds, 0).UTC(), flag.Args()
	if err := write(*out, o); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func (o options) check() error {
	for flagName, value := range map[string]string{
		"name": o.name, "version": o.version, "arch": o.architecture, "user": o.user,
		"entrypoint": o.entrypoint, "volume": o.volume,
	} {
		if value == "" {
			return fmt.Errorf("-%s: expected a value", flagName)
		}
	}
	uid, _, _ := strings.Cut(o.user, ":")
	switch {
	case len(o.layers) == 0:
		return errors.New("no layer: expected tar files")
	case uid == "0" || strings.Trim(uid, "0123456789") != "":
		return fmt.Errorf("-user %q: expected numbers, and not those of root", o.user)
	case o.created.Unix() <= 0:
		return errors.New("-created: expected seconds since 1970")
	}
	return nil
}

// write makes the folder, which must not be there.
func write(out string, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	image, err := newImage(o)
	if err != nil {
		return err
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		return fmt.Errorf("-out: %w", err)
	}
	index, err := layout.Write(out, empty.Index)
	if err != nil {
		return fmt.Errorf("-out %s: %w", out, err)
	}
	// A tag has no plus sign, which the version of a commit without a tag has.
	tag := strings.ReplaceAll(o.version, "+", "_")
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})
	platform := layout.WithPlatform(v1.Platform{OS: "linux", Architecture: o.architecture})
	if err := index.AppendImage(image, named, platform); err != nil {
		return fmt.Errorf("-out %s: %w", out, err)
	}
	return nil
}

func newImage(o options) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, path := range o.layers {
		layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", path, err)
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer: layer, History: v1.History{Created: v1.Time{Time: o.created}, CreatedBy: "farlog make release"},
		})
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", path, err)
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", o.architecture, v1.Time{Time: o.created}
	file.Config = v1.Config{
		User: o.user, Entrypoint: []string{o.entrypoint}, WorkingDir: "/", Env: []string{"PATH=/usr/bin"},
		Volumes: map[string]struct{}{o.volume: {}}, StopSignal: "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title":    o.name,
			"org.opencontainers.image.version":  o.version,
			"org.opencontainers.image.created":  o.created.Format(time.RFC3339),
			"org.opencontainers.image.source":   "https://github.com/farlog/farlog",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, file)
}
