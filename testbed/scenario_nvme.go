package main

import (
	"context"
	"fmt"
	"strings"
)

// The suite fills its ring many times: it has a namespace of its own, of the size that the suite takes elsewhere. It is a plain file of the target, whose LBA is 4096 bytes.
const (
	nvmeSmall    = "/var/lib/farlog/small"
	nvmeSmallLen = 288 << 10
)

// nvmeConformance runs the suite that every kind of region must pass on a namespace of another machine, over each transport.
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
	var seen []string
	for _, transport := range []string{"rdma", "tcp"} {
		device, err := b.connectNVMe(ctx, guests["host"], transport)
		if err != nil {
			return "", err
		}
		text, err := b.conformance(ctx, guests["host"], "nvme-"+transport, "FARLOG_TEST_BLOCK="+strings.TrimSuffix(device, "1")+"2 conformance nvme-device")
		if err != nil {
			return "", err
		}
		if err := b.disconnectNVMe(ctx, guests["host"]); err != nil {
			return "", err
		}
		seen = append(seen, fmt.Sprintf("over %s at %d flush methods", transport, strings.Count(text, ": conforms\n")))
	}
	return strings.Join(seen, ", "), nil
}
