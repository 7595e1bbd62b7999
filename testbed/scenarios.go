package main

import "time"

// scenarios in the order in which they run: what others stand on comes first.
var scenarios = []scenario{
	{"mem-conformance", "mem: on devdax, on fsdax and on a PCI BAR, at each flush method of the processor", 4 * time.Minute, memConformance},
	{"mem-killed", "a writer on devdax, its machine killed at a random moment and booted again, several times", 5 * time.Minute, memKilled},
	{"wire", "three machines with SoftRoCE: RDMA between them, through a cut, loss, delay and a link that goes down", 4 * time.Minute, wireSmoke},
	{"counting-clock", "a clock that counts instructions: what takes twice the work takes twice the time, again and again", 2 * time.Minute, countingClock},
}
