package main

// scenarios in the order in which they run: what others stand on comes first.
var scenarios = []scenario{
	{
		"mem-conformance", "mem: on devdax, on fsdax and on a PCI BAR, at each flush method of the processor; ofi: " +
			"from a client to devdax on the same machine, by an attested commit and by the target's processor", 1,
		memConformance,
	},
	{
		"mem-killed", "a writer on devdax, its machine killed at a random moment and booted again, several times", 1,
		memKilled,
	},
	{"verbs-conformance", "verbs: each flush method, from one machine to devdax on another, a READ only by " +
		"attestation; what the device itself refuses", 2, verbsConformance},
	{"verbs-faults", "a cut of 3 s, 5 % loss, 20 ms, the link of writer and target down 3 s each, the target's " +
		"machine killed at a random moment and booted again on its memory, while a far writer appends: nothing lost, " +
		"no append past its deadline", 2, verbsFaults},
	{"verbs-takeover", "a stopped writer's stream is taken over; when it goes on it is refused, counted, and told in " +
		"time; once by the device, while its queue pair still lives", 3, verbsTakeover},
	{
		"verbs-contract", "what a target or its memory cannot give is refused at open, with a text that says what to " +
			"do", 1, verbsContract,
	},
	{"trading", "the daemons: trading host to target by native FLUSH, 100,000 real records drained by RDMA READ from " +
		"a central host, then 50,000 locally", 3, trading},
	{"daemons-killed", "target, drain and writer, the real ones on three machines with SoftRoCE, killed 21 times at " +
		"random and started again; the control plane too; clocks jump by an hour and back", 3, daemonsKilled},
	{
		"members-verbs", "the daemons: a stream on members of three targets over SoftRoCE; a target slow, then " +
			"unreachable, its machine killed and booted again, a daemon killed, the writer stopped and taken over by " +
			"another host", 4, membersVerbs,
	},
	{"tenants", "a tenant that posts bare WRITEs and READs with another's address and key: refused by the device, " +
		"the other goes on", 3, tenants},
	{"nvmet-config", "the kernel's NVMe target from any state to any other, saved and restored in nvmetcli's JSON; " +
		"killed, booted, and set up again by the daemon, which repairs it", 1, nvmetConfig},
	{
		"nvme-fabric",
		"a namespace that fabric.yaml declares: the target exports it, the trading host's agent connects it " +
			"over rdma, again when it is lost, and over tcp; a program's records are there",
		2,
		nvmeFabric,
	},
	{
		"nvme-streams", "a stream in a namespace, by the daemons: opened by name, 100,000 records over rdma while " +
			"each daemon is killed, 100,000 over tcp, drained beside the target, taken over from a stopped writer", 3,
		nvmeStreams,
	},
	{"nvme-trading", "trading host to a namespace over rdma and over tcp, 100,000 real records each; drained by a " +
		"third host; its store verified; then what members-mixed proves, on the same machines", 3, nvmeTrading},
	{"nvme-faults", "port removed and put back, link cut for 10 s, target killed and booted again, while a host " +
		"appends to its namespace: nothing lost, no append past its deadline; then what nvme-refused proves, on the " +
		"same machines", 2, nvmeFaulted},
	{
		"nvme-takeover", "two hosts take a ring in a namespace from each other: one is stopped and refused by the " +
			"device when it goes on, by the block layer and by bare commands, one is cut off; a drain on a third " +
			"continues", 4, nvmeTakeover,
	},
	{"nvme-evicted", "a target whose kernel has no reservations: a host is not admitted before the target has " +
		"evicted the former writer's host for sure; what the former host sends later lands nowhere", 3, nvmeEvicted},
}

// namedScenarios run only when they are named: what takes minutes, what proves the testbed itself, and what others
// prove in another place.
var namedScenarios = []scenario{
	{
		"members-mixed", "a stream whose members are persistent memory of its host, that of another host over verbs, " +
			"and a namespace: the remote members at fault under load, then taken over by another host; nvme-trading " +
			"ends with it", 3, membersMixed,
	},
	{
		"wire", "three machines with SoftRoCE: RDMA between them, through a cut, loss, delay and a link that goes down",
		3, wireSmoke,
	},
	{"counting-clock", "a clock that counts instructions: what takes twice the work takes twice the time, again and " +
		"again", 1, countingClock},
	{"verbs-tmpfs", "verbs: on rings in /dev/shm, its own test and the suite on a ring alone in its region; the " +
		"other verbs scenarios have them on devdax and packed", 1, verbsTmpfs},
	{"verbs-bench", "an append over verbs: against a bare program that posts the same work requests, by the counting " +
		"clock", 1, verbsBench},
	{"blocks-bench", "an append to a ring in a namespace against io_uring alone and fio, in one guest, by the " +
		"counting clock: minutes", 1, blocksBench},
	{"nvme-conformance", "nvme: on a namespace of another machine's NVMe target, over rdma", 2, nvmeConformance},
	{"doctor", "farlog doctor on a host with SoftRoCE and an NVMe device, as it is and with each thing made bad; " +
		"rings on the device through a kill of the machine; the wear that the device reports", 1, doctorLooks},
	{"nvme-refused", "nvmet over rdma and tcp: a host that is not allowed, without a key, with a wrong one, with the " +
		"one before a rotation; nvme-faults ends with it", 2, nvmeRefused},
	{"members-rails", "the daemons: a stream on members of three targets over SoftRoCE, on two rails of the writer's " +
		"host, one of which is cut, and four streams of one ring, two on either", 4, membersRails},
}
