package main

import (
	"context"
	"fmt"
	"strings"
)

// The suite fills its ring many times: it has a namespace of its own, of the size that the suite takes elsewhere. It is
// a plain file of the target, whose LBA is 4096 bytes.
const (
	nvmeSmall    = "/var/lib/farlog/small"
	nvmeSmallLen = 288 << 10
)

// nvmeConformance runs the suite that every kind of region must pass on a namespace of another machine, by the flush
// that is chosen there: some twenty thousand commands one behind the other. Other ways of a flush are the part of a
// loop device, other transports that of nvme-trading and nvme-faults.
func nvmeConformance(ctx context.Context, b *bed) (string, error) {
	guests, err := b.nvmeBed(ctx, nvmeHost)
	if err != nil {
		return "", err
	}
	if _, err := guests["target"].Run(ctx, fmt.Sprintf("truncate -s %d %s", nvmeSmallLen, nvmeSmall)); err != nil {
		return "", err
	}
	if err := b.serveNVMe(ctx, guests["target"], "  - {nsid: 2, device: "+nvmeSmall+"}\n", "host"); err != nil {
		return "", err
	}
	if _, err := b.connectNVMe(ctx, guests["host"], "rdma"); err != nil {
		return "", err
	}
	const second = "nvme-device " + nvmeSubsystem + " 2"
	if _, err := guests["host"].Run(ctx, "wait-for "+second); err != nil {
		return "", err
	}
	text, err := b.conformance(ctx, guests["host"], "nvme-rdma",
		"FARLOG_TEST_FLUSH=auto FARLOG_TEST_BLOCK=$("+second+") conformance nvme-device")
	if err != nil {
		return "", err
	}
	if !strings.Contains(text, "?flush=auto (level persistent): conforms\n") {
		return "", fmt.Errorf("no ring was seen to conform at the level persistent: %s", text)
	}
	return "over rdma, on a plain file of the target, LBA 4096", b.disconnectNVMe(ctx, guests["host"])
}
