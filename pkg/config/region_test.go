package config

import (
	"strings"
	"testing"
)

func TestRegionURI(t *testing.T) {
	for uri, want := range map[string]string{
		"mem:/dev/dax0.0":                          "",
		"mem:/dev/dax0.0?attest=cpu_cache":         "the file of --attestation",
		"mem:/var/lib/farlog/region?size=67108864": "",
		"mem:/region?flush=msync&size=180224":      "",
		"nvme:/dev/nvme2n1":                        "",
		"nvme:nqn.2026-01.com.example:desk7/1":     "",
		"nvme:/dev/nvme2n1?ring=orders":            "expected mem:/path or nvme:/path without a ring",
		"mem:region":                               "expected mem:/path or nvme:/path without a ring",
		"verbs://host:1":                           "expected mem:/path or nvme:/path without a ring",
		"mem:/region?ring=orders":                  "expected mem:/path or nvme:/path without a ring",
		"mem:/region?size=64MiB": `size "64MiB": expected a number of bytes that is a multiple of 4096, ` +
			`180224 at least`,
		"mem:/region?size=":                          `option "size" has no value`,
		"mem:/region?size=176128":                    `size "176128": expected`,
		"mem:/region?size=1000000":                   `size "1000000": expected`,
		"mem:/region?size=-4096":                     `size "-4096": expected`,
		"mem:/region?size=18446744073709547520":      `size "18446744073709547520": expected`,
		"mem:/region?sise=67108864":                  `unknown option "sise": expected flush or size`,
		"mem:/region?size=67108864&ring=orders/desk": "expected mem:/path or nvme:/path without a ring",
	} {
		err := RegionURI(uri)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), uri)) {
			t.Errorf("%s: %v, expected %q", uri, err, want)
		}
	}
}
