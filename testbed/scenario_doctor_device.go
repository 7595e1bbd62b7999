package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	deviceRecords = 20_000
	deviceLeast   = 200 // acknowledged in each life
	dataUnit      = 512_000
	// The kernel numbers namespaces as it finds them, at each boot again.
	deviceSubsystem = "nqn.2019-08.org.qemu:host"
	isDegraded      = 0x04 // a critical warning of an NVMe device
)

// deviceRing is a ring in a namespace of the local device, and what its writers said.
type deviceRing struct {
	uri    string
	image  string
	ledger *ledger
	writer *vm.Process
}

// killed makes a ring in each of two namespaces, by the block layer and by bare commands, and kills the machine while
// both are written to.
func (d *patient) killed(ctx context.Context) ([]*deviceRing, error) {
	host, err := d.bed.boot(ctx, doctored)
	if err != nil {
		return nil, err
	}
	d.host = host
	var rings []*deviceRing
	for n, options := range []string{"", "?commands=nvme"} {
		records, err := newRecords(fmt.Sprintf("D%d", n), deviceRecords)
		if err != nil {
			return nil, err
		}
		rings = append(rings, &deviceRing{
			uri:   fmt.Sprintf("nvme:%s/%d%s", deviceSubsystem, n+1, options),
			image: d.bed.namespace(host.Name, n+1), ledger: newLedger(records),
		})
	}
	script := doctorUp
	for _, ring := range rings {
		script += fmt.Sprintf(" && farlog ring format '%s' --stream desk/orders", ring.uri)
	}
	if _, err := host.Run(ctx, script); err != nil {
		return nil, err
	}
	if err := d.write(ctx, rings, deviceLeast+d.bed.draw(deviceLeast)); err != nil {
		return nil, err
	}
	for _, ring := range rings {
		if _, err := ring.writer.Write(ring.ledger.records.framed(ring.ledger.next,
			ring.ledger.next+4000)); err != nil {
			return nil, err
		}
	}
	// an answer that no ledger has: the machine is killed among them
	if _, err := rings[d.bed.draw(len(rings))].writer.ReadLine(ctx); err != nil {
		return nil, err
	}
	host.Kill()
	for _, ring := range rings {
		if _, err := ring.prove(); err != nil {
			return nil, err
		}
	}
	return rings, nil
}

// write opens a writer of each ring, and has so many records acknowledged by each.
func (d *patient) write(ctx context.Context, rings []*deviceRing, count int) (err error) {
	for _, ring := range rings {
		if ring.writer, err = d.bed.start(d.host, "append",
			fmt.Sprintf("exec farlog append --ring '%s' --format length-prefixed --ack text --window 16",
				ring.uri)); err != nil {
			return err
		}
		enough := ring.ledger.next + count
		if err := ring.ledger.feed(ctx, d.bed, ring.writer,
			func(acknowledged int) bool { return acknowledged >= enough }); err != nil {
			return fmt.Errorf("%s: %w: %s", ring.uri, err, ring.writer.Stderr())
		}
	}
	return nil
}

func (r *deviceRing) prove() (proof, error) {
	proved, err := r.ledger.proveImage(r.image, 0, namespaceLen)
	if err != nil {
		err = fmt.Errorf("%s: %w", r.uri, err)
	}
	return proved, err
}

// recovered: the next writers go on behind what the killed ones left.
func (d *patient) recovered(ctx context.Context, rings []*deviceRing) (string, error) {
	if _, err := d.host.Run(ctx, doctorUp); err != nil {
		return "", err
	}
	if err := d.write(ctx, rings, deviceLeast); err != nil {
		return "", err
	}
	var seen []string
	for _, ring := range rings {
		if err := finish(ctx, ring.writer); err != nil {
			return "", err
		}
		proved, err := ring.prove()
		if err != nil {
			return "", err
		}
		if said := ring.writer.Stderr(); !strings.Contains(said, "acknowledges persistent") {
			return "", fmt.Errorf("%s does not acknowledge persistent: %s", ring.uri, said)
		}
		seen = append(seen, ring.uri+": "+proved.String())
	}
	return "killed and recovered: " + strings.Join(seen, ", "), nil
}

// smart is what the device says by nvme-cli.
type smart struct {
	Written  uint64 `json:"data_units_written"`
	Used     uint64 `json:"percent_used"`
	Spare    uint64 `json:"avail_spare"`
	Critical uint64 `json:"critical_warning"`
}

func (d *patient) smart(ctx context.Context) (said smart, err error) {
	text, err := d.host.Run(ctx, "nvme smart-log -o json /dev/nvme0 2>/dev/null")
	if err != nil {
		return said, err
	}
	return said, json.Unmarshal([]byte(text), &said)
}

// wear: a target whose rings lie on the device tells its wear as the device does, in its metrics and to the control
// plane; a warning that the device gives from now on as well.
func (d *patient) wear(ctx context.Context) (string, error) {
	if err := d.host.SetHealthWarning(ctx, isDegraded); err != nil {
		return "", err
	}
	before, err := d.smart(ctx)
	if err != nil {
		return "", err
	}
	target, err := d.bed.start(d.host, "target", fmt.Sprintf("exec farlogd target --control 10.7.0.1:%d --data-dir "+
		"%s/target --host-name host --metrics-listen %s",
		controlPort, doctorStore, targetMetrics))
	if err != nil {
		return "", err
	}
	const listed = "farlog target list --control 10.7.0.1:7070"
	text, err := d.host.Run(ctx,
		"wait-for sh -c '"+listed+" --output json | grep /dev/"+d.disk+"' >&2 && "+listed+" --output json")
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, target.Stderr())
	}
	metrics, err := d.host.Run(ctx,
		"busybox wget -qO- http://"+targetMetrics+"/metrics | grep 'device=\"/dev/"+d.disk+"\"'")
	if err != nil {
		return "", err
	}
	table, err := d.host.Run(ctx, listed)
	if err != nil {
		return "", err
	}
	after, err := d.smart(ctx)
	if err != nil {
		return "", err
	}
	if err := errors.Join(isWornAs(d.disk, before, after, text, metrics), isListed(table)); err != nil {
		return "", err
	}
	return fmt.Sprintf("wear told as by nvme-cli, %d units of 512,000 bytes written", after.Written), crash(ctx, target)
}

func isListed(table string) error {
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != 2 || !strings.HasSuffix(strings.TrimSpace(lines[0]), "WORN") ||
		!strings.HasSuffix(strings.TrimSpace(lines[1]), " 0%") {
		return fmt.Errorf("the list of targets: %q, want WORN 0%%", table)
	}
	return nil
}

// isWornAs compares what the control plane and the metrics have with what the device said before and after they were
// made.
func isWornAs(disk string, before, after smart, text, metrics string) error {
	var list struct {
		Targets []struct {
			Agents []struct {
				Media []struct {
					Device   string
					Used     float64 `json:"used_ratio"`
					Spare    float64 `json:"spare_ratio"`
					Written  uint64  `json:"written_bytes,string"`
					Critical uint64  `json:"critical_warning"`
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Targets) != 1 ||
		len(list.Targets[0].Agents) != 1 || len(list.Targets[0].Agents[0].Media) != 1 {
		return fmt.Errorf("the list of targets has not one with one device: %w: %s", err, text)
	}
	one := list.Targets[0].Agents[0].Media[0]
	if one.Device != "/dev/"+disk || one.Used != float64(after.Used)/100 || one.Spare != float64(after.Spare)/100 ||
		one.Critical != isDegraded || after.Critical != isDegraded {
		return fmt.Errorf("the control plane says %+v, the device %+v", one, after)
	}
	if before.Written < 8 || one.Written < before.Written*dataUnit || one.Written > after.Written*dataUnit {
		return fmt.Errorf("the control plane says %d bytes were written, the device %d to %d units", one.Written,
			before.Written, after.Written)
	}
	for name, want := range map[string]float64{
		"wear_ratio": one.Used, "spare_ratio": one.Spare, "device_critical": 1,
		"device_written_bytes_total": float64(one.Written),
	} {
		got, err := metricOf(metrics, "farlog_target_"+name)
		// Another minute may have begun.
		isLater := name == "device_written_bytes_total" && got > want && got <= float64(after.Written*dataUnit)
		if err != nil || got != want && !isLater {
			return fmt.Errorf("%s is %g, want %g: %w: %s", name, got, want, err, metrics)
		}
	}
	return nil
}

// metricOf finds a metric with one set of labels.
func metricOf(text, name string) (float64, error) {
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, name+"{") {
			return strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// crash ends a process as a crash would.
func crash(ctx context.Context, p *vm.Process) error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	select {
	case <-p.Ended():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
