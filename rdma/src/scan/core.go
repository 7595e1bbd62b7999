// Package core compiles one room of the C core, recovery: where a log ends, for pkg/farlog.
//
// It imports the rooms whose headers it includes, and each room embeds its own: so Go compiles this one again when one
// of them changes.
package core

/*
#cgo CFLAGS: -std=gnu11 -D_GNU_SOURCE -O2 -fno-plt -Wall -I${SRCDIR}/../../include -I${SRCDIR}/..
#cgo CFLAGS: -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
#cgo LDFLAGS: -lpthread -Wl,-z,relro,-z,now
*/
import "C"

import (
	"embed"

	_ "github.com/farlog/farlog/rdma/include/farlog"
	_ "github.com/farlog/farlog/rdma/src/base"
	_ "github.com/farlog/farlog/rdma/src/region"
	_ "github.com/farlog/farlog/rdma/src/ring"
)

//go:embed *.h
var _ embed.FS
