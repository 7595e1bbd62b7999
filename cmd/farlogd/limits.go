package main

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/pkg/config"
)

// addressSpaceLeast is what a daemon may map at least: etcd's database alone maps 10 GiB. That is no memory.
const addressSpaceLeast = 16 << 30

// checkAddressSpace refuses a limit of the address space (ulimit -v) under which the daemon would end in the middle of
// its work: Go has no error for a mapping that fails.
func checkAddressSpace() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err != nil {
		return fmt.Errorf("read the limit of the address space: %w", err)
	}
	if limit.Cur >= addressSpaceLeast {
		return nil
	}
	return fmt.Errorf("the address space of this process is limited to %s (ulimit -v, LimitAS=): expected no limit, "+
		"or at least %s: limit its memory by MemoryMax= instead", config.FormatSize(limit.Cur),
		config.FormatSize(addressSpaceLeast))
}
