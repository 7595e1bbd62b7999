/* base/phc.h -- hardware clocks (/dev/ptpN) as witnesses against the system clock.
 *
 * A PTP hardware clock knows nothing of UTC by itself: somebody sets and steers it, or it runs on from where its driver
 * started it. So its time never replaces the bound of the kernel's clock discipline and never makes it smaller. Where
 * the two clocks disagree one of them is wrong, it is not known which, and the disagreement is added to the bound.
 *
 * Only a clock that somebody keeps can be a witness, or every unused network card would widen the bound by what it has
 * drifted since boot. Kept is one that somebody here has steered (its frequency is set: ptp4l, ts2phc), and one that
 * cannot be steered from here (max_adjustment 0: a hypervisor's or provider's own, as KVM, Hyper-V, ENA). It becomes a
 * witness when it has once agreed with the system clock within PHC_AGREES_NS, on the scale of UTC or of TAI by the
 * kernel's offset; others keep a time of their own. From then on its disagreement counts however large, and its silence
 * makes the error unknown, until the device is gone. The clock that FARLOG_CLOCK_PHC names is a witness from the start
 * and for ever.
 *
 * ASSUMPTIONS: a set is used by one thread at a time; its calls are system calls and take a device's time. */
#ifndef FARLOG_PHC_H
#define FARLOG_PHC_H

#include <stdbool.h>
#include <stdint.h>

#include "farlog/farlog.h"

struct ptp_sys_offset;

#define PHC_COUNT_MAX 16
#define PHC_UNKNOWN UINT32_MAX
#define PHC_AGREES_NS 1000000000u

struct phc {
	int fd;
	bool is_named;       /* by FARLOG_CLOCK_PHC */
	bool is_unsteerable; /* from here: somebody else keeps it */
	bool is_witness;
};

struct phc_set {
	struct phc phcs[PHC_COUNT_MAX];
	unsigned count;
};

/* What one look at a clock gave. */
struct phc_reading {
	int failure; /* errno; 0 = the offset is good */
	bool is_steered;
	uint64_t offset_ns; /* bound on |system clock - hardware clock| */
};

/* phc_open -- `setting` is the value of FARLOG_CLOCK_PHC: a device; "none"; NULL or "" for every clock under sysfs_dir
 * (ptpN) whose device under device_dir may be opened. ERRORS: the errno of a named device that cannot be opened; a
 * clock that was only found and may not be opened is left out. */
int phc_open(struct phc_set *set, const char *setting, const char *sysfs_dir, const char *device_dir) FARLOG_MUST_CHECK;
void phc_close(struct phc_set *set);

/* phc_error_ns -- reads the clocks: what they add to the error of the system clock; PHC_UNKNOWN when that cannot be
 * said. */
uint64_t phc_error_ns(struct phc_set *set, int tai_offset_s);

/* phc_offset -- bound on the offset in a device's answer, on the nearer of the two scales. False: no sample of it is
 * usable. */
bool phc_offset(const struct ptp_sys_offset *answer, int tai_offset_s, uint64_t *offset_ns);

/* phc_update -- what a reading adds to the error, and whether the clock is a witness from now on. */
uint64_t phc_update(struct phc *phc, const struct phc_reading *reading);

#endif
