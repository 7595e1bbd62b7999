// Package headers is the public headers of the C core: Go compiles what includes them again when one of them changes.
package headers

import "embed"

//go:embed *.h
var _ embed.FS
