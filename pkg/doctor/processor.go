package doctor

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

const (
	idleLatencyMax = 10  // microseconds to wake up in
	clockErrorMax  = 100 // microseconds: RTS 25 for high-frequency trading
	staUnsync      = 0x0040
)

// processor looks at what makes a core slow to answer.
func (h Host) processor() []Finding { return []Finding{h.idleStates(), h.governor()} }

// idleStates looks at every core: some are often set apart for a writer.
func (h Host) idleStates() Finding {
	const unseenCure = "cpupower idle-info; of a guest on the machine below it, which alone knows how its cores sleep"
	deepest, latency, slow := "", int64(-1), map[string]bool{}
	states := h.glob("/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state*")
	for _, state := range states {
		if disabled, _ := h.number(state + "/disable"); disabled != 0 {
			continue
		}
		wake, ok := h.number(state + "/latency")
		if !ok {
			return Finding{"idle states", Warn, "not seen: " + state + "/latency cannot be read", unseenCure}
		}
		if wake > latency {
			deepest, latency = h.read(state+"/name"), wake
		}
		if wake > idleLatencyMax {
			slow[path.Dir(path.Dir(state))] = true
		}
	}
	switch {
	case len(states) == 0:
		return Finding{"idle states", Warn, "not seen: this kernel shows none", unseenCure}
	case latency < 0:
		return Finding{"idle states", OK, fmt.Sprintf("all %d are disabled", len(states)), ""}
	case len(slow) > 0:
		count := len(h.glob("/sys/devices/system/cpu/cpu[0-9]*/cpuidle"))
		return Finding{
			"idle states", Warn, fmt.Sprintf("a core that sleeps in %s takes %d us to wake up, on %d of "+
				"%d cores more than %d us", deepest, latency, len(slow), count, idleLatencyMax),
			fmt.Sprintf("cpupower idle-set -D %d, or on a writer's cores alone: cpupower -c CORES idle-set -D %d",
				idleLatencyMax, idleLatencyMax),
		}
	}
	return Finding{"idle states", OK, fmt.Sprintf("the deepest is %s, %d us", deepest, latency), ""}
}

func (h Host) governor() Finding {
	const unseenCure = "cpupower frequency-info; of a guest on the machine below it, which alone clocks its cores"
	unread, other := "", ""
	paths := h.glob("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
	for _, path := range paths {
		switch governor := h.read(path); governor {
		case "performance":
		case "":
			unread = path
		default:
			other = governor
		}
	}
	switch {
	case len(paths) == 0:
		return Finding{"governor", Warn, "not seen: this kernel shows none", unseenCure}
	case unread != "":
		return Finding{"governor", Warn, "not seen: " + unread + " cannot be read", unseenCure}
	case other != "":
		return Finding{
			"governor", Warn, other + ": cores that rest are clocked down",
			"cpupower frequency-set -g performance",
		}
	}
	return Finding{"governor", OK, "performance", ""}
}

// clock looks at the source and the bound on the error of the time in records.
func (h Host) clock() []Finding {
	source := h.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	finding := Finding{"clock source", OK, source, ""}
	if source != "tsc" && source != "arch_sys_counter" {
		finding = Finding{
			"clock source", Warn, fmt.Sprintf("%q: reading the time may leave user space", source),
			"clocksource=tsc on the kernel's command line, if it is stable there",
		}
	}
	var state unix.Timex
	if _, err := unix.Adjtimex(&state); err != nil {
		return []Finding{finding, {
			"clock", Warn, "the kernel does not report it: " + err.Error(),
			"allow adjtimex, which a container may forbid",
		}}
	}
	return []Finding{finding, clockFinding(state.Status&staUnsync != 0, int64(state.Maxerror))}
}

func clockFinding(isUnsynchronised bool, errorMax int64) Finding {
	const remedy = "chronyc tracking, or pmc -u -b 0 'GET CURRENT_DATA_SET'; install chrony or linuxptp where " +
		"neither is there"
	switch {
	case isUnsynchronised:
		return Finding{"clock", Warn, "nothing keeps it: the time in records has no bound", remedy}
	case errorMax > clockErrorMax:
		return Finding{"clock", Warn, fmt.Sprintf("wrong by at most %d us; RTS 25 asks for %d us of high-frequency "+
			"trading", errorMax, clockErrorMax), remedy}
	}
	return Finding{"clock", OK, fmt.Sprintf("wrong by at most %d us", errorMax), ""}
}
