/* blocks/block.h -- the seam between an nvme region and what carries its blocks: io_uring on a device (blocks/uring.c),
 * or the adversarial blocks of the crash tests (adversary/blocks.c).
 *
 * A command reads or writes whole LBAs. A power cut leaves each LBA of a write as it was or as it was to be, in any
 * subset; of a write of more than one LBA that had not come back it may even leave neither (NVM Express: nothing is
 * said of what a write beyond AWUPF leaves). Commands come back in any order. A queue is used by one thread at a
 * time. */
#ifndef FARLOG_BLOCK_H
#define FARLOG_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "farlog/farlog.h"
#include "region/region.h"

#define BLOCK_DEPTH 64u /* commands that a queue takes */
/* no command's bytes cross a multiple of this, counted from where the copy begins */
#define BLOCK_BUFFER_LEN (1u << 30)

enum block_queue {
	BLOCK_COMMITS = 0, /* of the append path */
	BLOCK_CALLS = 1,   /* of calls that wait */
	BLOCK_AHEAD = 2,   /* of a drain: reads that are not waited for yet */
	BLOCK_QUEUE_COUNT = 3,
};

enum block_verb {
	BLOCK_READ = 0,
	BLOCK_WRITE = 1,
	BLOCK_WRITE_DURABLE = 2, /* on the media when it comes back */
	BLOCK_FLUSH = 3,         /* all that has come back is on the media then; no bytes */
};

struct block_command {
	enum block_verb verb;
	uint32_t len;
	uint64_t off;   /* on the device; a multiple of its LBA, as len */
	uint8_t *bytes; /* aligned to LAYOUT_BLOCK_LEN or to an LBA; not to be touched until the command is back */
	uint64_t id;
};

struct block_answer {
	uint64_t id;
	int failure; /* errno, 0 = done. ENODEV: the device was removed, and has to be opened again */
};

struct block_device;

enum reserve_verb {
	RESERVE_REPORT = 0,   /* fill the view in */
	RESERVE_REGISTER = 1, /* this host, that has no key: by this one */
	RESERVE_REPLACE = 2,  /* this host's key, whichever it is */
	RESERVE_ACQUIRE = 3,  /* nobody holds it */
	/* from the host with the other key, which is registered no more; what it had under way has ended then */
	RESERVE_PREEMPT = 4,
};

/* Reservations of a namespace, as this host sees them. */
struct reserve_view {
	bool is_here; /* the device has them, of the type we use; else nothing below is filled in */
	bool is_kept; /* they outlive a restart of the target */
	/* a connection that breaks takes the device with it: no command of ours reaches a target that was started again */
	bool is_gone_when_lost;
	uint8_t type; /* 0 = nobody holds one */
	uint64_t holder_key;
	bool is_holder_us;
	bool is_registered; /* this host */
	/* by what the device knows it: filled in also where is_here is false, as far as several hosts reach the device */
	char host[40];
	char name[224];          /* by what the target lets it in, its NQN; "" = the kernel does not tell */
	uint64_t other_keys[16]; /* of the other hosts that are registered */
	unsigned other_count;
};

struct block_ops {
	/* Take a command. It goes out with the next send or wait. At most BLOCK_DEPTH are under way. */
	void (*put)(struct block_device *device, enum block_queue queue, const struct block_command *command);
	/* Send what was put: one system call, none when there is nothing. OK or IO, with errno. */
	int (*send)(struct block_device *device, enum block_queue queue) FARLOG_MUST_CHECK;
	/* The same, and block until an answer is there, at most timeout_ns: one system call for both. OK or IO, with
	 * errno. */
	int (*wait)(struct block_device *device, enum block_queue queue, uint64_t timeout_ns) FARLOG_MUST_CHECK;
	/* Take answers that are there. Returns how many, 0 = none. */
	unsigned (*take)(
		struct block_device *device, enum block_queue queue, struct block_answer *answers, unsigned count_max);
	/* These bytes are where commands will come from: their pages are fetched now. False: it works without, but slower.
	 * NULL: nothing to do. */
	bool (*use_buffer)(struct block_device *device, uint8_t *bytes, uint64_t len, uint8_t *others, uint64_t others_len);
	/* Zero and durable. Blocks. OK, NO_MEMORY or IO, with errno. */
	int (*zero)(struct block_device *device, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
	/* What lies there that is not ours, as text: "" = nothing. OK; UNSUPPORTED: it cannot be identified; IO. NULL:
	 * nothing can. */
	int (*name_foreign)(struct block_device *device, char *text, size_t size) FARLOG_MUST_CHECK;
	int (*lock)(struct block_device *device, enum region_role role) FARLOG_MUST_CHECK;
	void (*unlock)(struct block_device *device, enum region_role role);
	int (*is_locked)(struct block_device *device, enum region_role role) FARLOG_MUST_CHECK;
	/* Does another one hold a lock of a ring in a directory here? 1, 0 or IO, with errno. */
	int (*has_parts)(struct block_device *device) FARLOG_MUST_CHECK;
	/* NULL: nothing of the kind. OK; HELD: a reservation conflict; UNSUPPORTED; IO, with errno. May block as long as
	 * the device's driver waits. */
	int (*reserve)(struct block_device *device, enum reserve_verb verb, uint64_t key, uint64_t other,
		struct reserve_view *view) FARLOG_MUST_CHECK;
	/* With commands under way: they go on, and the device's locks stay until the last is back. */
	void (*close)(struct block_device *device);
};

struct block_device {
	const struct block_ops *ops;
	uint64_t size_bytes;
	uint64_t ring_off; /* where the ring begins whose locks are meant: 0, or as its directory says */
	uint32_t lba_len;
	uint32_t command_len_max; /* of a write */
	uint32_t read_len_max;    /* 0 = any */
	uint64_t reopen_delay_ns; /* region_caps.reopen_delay_ns */
	bool is_clockless;        /* of the tests: nothing that happens may depend on the time; patience is counted */
	bool is_former_gone;      /* the opener attests: the last writer of another host is gone */
	uint64_t enter_count;     /* system calls of the commits' queue */
	uint16_t status;          /* of the last command that failed, as an NVMe device gave it: commands=nvme; 0 = none */
};

#endif
