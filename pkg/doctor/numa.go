package doctor

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

const nodesDir = "/sys/devices/system/node"

// numa says how far a card is from the memory that it is to write to and read from: persistent memory, which is where
// it is, and that of processes, which is where their threads run.
func (h Host) numa(name, file string) []Finding {
	nodes := len(h.glob(nodesDir + "/node[0-9]*"))
	node, ok := h.number(file)
	switch {
	case nodes == 0:
		return []Finding{{
			name, Warn, "not seen: this kernel shows no NUMA nodes",
			"lstopo; of a guest on the machine below it",
		}}
	case nodes == 1:
		return []Finding{{name, OK, "one NUMA node", ""}}
	case !ok || node < 0:
		return []Finding{{
			name, Warn, fmt.Sprintf("%d NUMA nodes, and the device does not say at which it is", nodes),
			"lstopo, or the slot in the board's manual; then numactl --cpunodebind",
		}}
	}
	findings := []Finding{h.threads(name, node, nodes)}
	for _, region := range h.glob("/sys/bus/nd/devices/region*") {
		check := name + " " + path.Base(region)
		at, ok := h.number(region + "/numa_node")
		if !ok || at < 0 {
			findings = append(findings, Finding{
				check, Warn, "not seen: the region does not say at which node it is",
				"ndctl list -v",
			})
			continue
		}
		findings = append(findings, h.apart(check, node, at))
	}
	return findings
}

// threads are judged by this process's own, as limits are.
func (h Host) threads(name string, node int64, nodes int) Finding {
	processors := h.processors()
	if len(processors) == 0 {
		return Finding{name, Warn, fmt.Sprintf("at node %d of %d; on which processors this shell runs is not seen",
			node, nodes), "taskset -p $$"}
	}
	own := cpuSet(h.read(fmt.Sprintf("%s/node%d/cpulist", nodesDir, node)))
	for cpu := range processors {
		if !own[cpu] {
			farthest := int64(0)
			for at := range int64(nodes) {
				farthest = max(farthest, h.distance(node, at))
			}
			return Finding{
				name, Warn, fmt.Sprintf("at node %d of %d; this shell also runs on others, whose memory "+
					"is as far as distance %d, and that of node %d %d", node, nodes, farthest, node,
					h.distance(node, node)),
				fmt.Sprintf("numactl --cpunodebind=%d --membind=%d PROGRAM, as this doctor, too; CPUAffinity= and "+
					"NUMAPolicy= in a unit", node, node),
			}
		}
	}
	return Finding{name, OK, fmt.Sprintf("at node %d of %d, as this shell's processors are: distance %d", node, nodes,
		h.distance(node, node)), ""}
}

func (h Host) apart(name string, node, at int64) Finding {
	if node == at {
		return Finding{name, OK, fmt.Sprintf("at node %d as well: distance %d", at, h.distance(node, at)), ""}
	}
	return Finding{
		name, Warn, fmt.Sprintf("at node %d, the card at node %d: distance %d, within the node %d", at, node,
			h.distance(node, at), h.distance(node, node)),
		"give the target a region at the card's node, or plug the card in at the region's",
	}
}

// distance as the firmware tells it, 10 within a node; 0: it does not.
func (h Host) distance(from, to int64) int64 {
	fields := strings.Fields(h.read(fmt.Sprintf("%s/node%d/distance", nodesDir, from)))
	if to >= int64(len(fields)) {
		return 0
	}
	value, _ := strconv.ParseInt(fields[to], 10, 64) // what is no number is not told either
	return value
}

// processors are those on which this process may run.
func (h Host) processors() map[int]bool {
	for _, line := range strings.Split(h.read("/proc/self/status"), "\n") {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return cpuSet(list)
		}
	}
	return nil
}

// cpuSet reads a list such as 0-7,16-23.
func cpuSet(list string) map[int]bool {
	set := map[int]bool{}
	for _, part := range strings.Split(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, fromErr := strconv.Atoi(first)
		to, toErr := strconv.Atoi(last)
		if fromErr != nil || toErr != nil {
			continue
		}
		for cpu := from; cpu <= to; cpu++ {
			set[cpu] = true
		}
	}
	return set
}
