//go:build farlog_fault

// Package adversary compiles adversarial memory, files and block devices for crash tests in Go. They come in by the
// seam of regions, as fault:, file-fault: and block-fault:.
package adversary

/*
#cgo CFLAGS: -std=gnu11 -D_GNU_SOURCE -O2 -Wall
#cgo CFLAGS: -I${SRCDIR}/../../include -I${SRCDIR}/../../src -I${SRCDIR}/..
#cgo LDFLAGS: -Wl,--wrap=clock_monotonic_ns -Wl,--wrap=clock_poll -Wl,--wrap=clock_sample -Wl,--wrap=persist_msync
#cgo LDFLAGS: -Wl,--wrap=verbs_keys_invalidate
*/
import "C"

import (
	"embed"

	_ "github.com/farlog/farlog/rdma/include/farlog"
	_ "github.com/farlog/farlog/rdma/src/base"
	_ "github.com/farlog/farlog/rdma/src/blocks"
	_ "github.com/farlog/farlog/rdma/src/mem"
	_ "github.com/farlog/farlog/rdma/src/region"
	_ "github.com/farlog/farlog/rdma/src/ring"
	_ "github.com/farlog/farlog/rdma/src/target"
)

//go:embed *.h
var _ embed.FS
