/* base/phc.c -- finding hardware clocks, reading them, judging what they say. */
#include "base/phc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ptp_clock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#define SAMPLE_COUNT 3
#define PATH_LEN 512

/* read_number -- the number that a sysfs file holds; false when it cannot be read. */
static bool read_number(const char *path, long *number)
{
	char text[32] = {0};
	char *end;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len;

	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	*number = len > 0 ? strtol(text, &end, 10) : 0;
	return len > 0 && end != text;
}

/* open_device -- for writing if we may: older kernels tell the frequency that was set only to who could change it. */
static int open_device(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	return fd >= 0 ? fd : open(path, O_RDONLY | O_CLOEXEC);
}

static bool is_clock_name(const char *name)
{
	return strncmp(name, "ptp", 3) == 0 && name[3] != '\0' && name[3 + strspn(name + 3, "0123456789")] == '\0';
}

static void add_found(struct phc_set *set, const char *name, const char *sysfs_dir, const char *device_dir)
{
	struct phc phc = {0};
	char path[PATH_LEN];
	long adjustment_max;

	if (set->count == PHC_COUNT_MAX || snprintf(path, sizeof(path), "%s/%s", device_dir, name) >= (int)sizeof(path))
		return;
	phc.fd = open_device(path);
	if (phc.fd < 0)
		return;
	if (snprintf(path, sizeof(path), "%s/%s/max_adjustment", sysfs_dir, name) < (int)sizeof(path))
		phc.is_unsteerable = read_number(path, &adjustment_max) && adjustment_max == 0;
	set->phcs[set->count++] = phc;
}

static void find_clocks(struct phc_set *set, const char *sysfs_dir, const char *device_dir)
{
	DIR *directory = opendir(sysfs_dir);
	struct dirent *entry;

	if (directory == NULL)
		return;
	while ((entry = readdir(directory)) != NULL) {
		if (is_clock_name(entry->d_name))
			add_found(set, entry->d_name, sysfs_dir, device_dir);
	}
	closedir(directory);
}

int phc_open(struct phc_set *set, const char *setting, const char *sysfs_dir, const char *device_dir)
{
	struct phc named = {.is_named = true, .is_witness = true};

	set->count = 0;
	if (setting == NULL || setting[0] == '\0') {
		find_clocks(set, sysfs_dir, device_dir);
		return 0;
	}
	if (strcmp(setting, "none") == 0)
		return 0;
	named.fd = open(setting, O_RDONLY | O_CLOEXEC);
	if (named.fd < 0)
		return errno;
	set->phcs[set->count++] = named;
	return 0;
}

void phc_close(struct phc_set *set)
{
	for (unsigned i = 0; i < set->count; i++)
		close(set->phcs[i].fd);
	set->count = 0;
}

/* nanoseconds -- of what a device says, which may be anything: wider than 64 bits. */
static __int128 nanoseconds(const struct ptp_clock_time *time)
{
	return (__int128)time->sec * 1000000000 + time->nsec;
}

static __int128 magnitude(__int128 value)
{
	return value < 0 ? -value : value;
}

bool phc_offset(const struct ptp_sys_offset *answer, int tai_offset_s, uint64_t *offset_ns)
{
	__int128 best_ns = INT64_MAX;
	bool is_usable = false;

	for (unsigned i = 0; i < answer->n_samples && i < PTP_MAX_SAMPLES; i++) {
		__int128 before_ns = nanoseconds(&answer->ts[2 * i]);
		__int128 after_ns = nanoseconds(&answer->ts[2 * i + 2]);
		__int128 ahead_ns = nanoseconds(&answer->ts[2 * i + 1]) - (before_ns + after_ns) / 2;
		__int128 off_ns = magnitude(ahead_ns);
		__int128 off_tai_ns = magnitude(ahead_ns - (__int128)tai_offset_s * 1000000000);

		if (after_ns < before_ns) /* the system clock was set back in between */
			continue;
		/* The device was read somewhere between the two: half their distance is not known. */
		off_ns = (off_tai_ns < off_ns ? off_tai_ns : off_ns) + (after_ns - before_ns + 1) / 2;
		best_ns = off_ns < best_ns ? off_ns : best_ns;
		is_usable = true;
	}
	*offset_ns = (uint64_t)best_ns;
	return is_usable;
}

/* is_steered -- whether somebody has set the clock's frequency. The kernel's answer, not the device's: it costs no read
 * of it. */
static bool is_steered(int fd)
{
	struct timex state = {.modes = 0};
	/* clock_gettime(3): how a device's descriptor is made a clock */
	clockid_t id = (clockid_t)(~(unsigned)fd << 3 | 3);

	return clock_adjtime(id, &state) >= 0 && state.freq != 0;
}

static void read_clock(const struct phc *phc, int tai_offset_s, struct phc_reading *reading)
{
	struct ptp_sys_offset answer = {.n_samples = SAMPLE_COUNT};

	*reading = (struct phc_reading){.failure = EAGAIN, .is_steered = is_steered(phc->fd)};
	if (ioctl(phc->fd, PTP_SYS_OFFSET, &answer) != 0)
		reading->failure = errno;
	else if (phc_offset(&answer, tai_offset_s, &reading->offset_ns))
		reading->failure = 0;
}

uint64_t phc_update(struct phc *phc, const struct phc_reading *reading)
{
	bool is_kept = phc->is_unsteerable || reading->is_steered;

	if (reading->failure == ENODEV && !phc->is_named)
		phc->is_witness = false;
	else if (reading->failure == 0 && is_kept && reading->offset_ns <= PHC_AGREES_NS)
		phc->is_witness = true;
	if (!phc->is_witness)
		return 0;
	return reading->failure == 0 && reading->offset_ns < PHC_UNKNOWN ? reading->offset_ns : PHC_UNKNOWN;
}

uint64_t phc_error_ns(struct phc_set *set, int tai_offset_s)
{
	uint64_t worst_ns = 0;

	for (unsigned i = 0; i < set->count; i++) {
		struct phc_reading reading;
		uint64_t error_ns;

		read_clock(&set->phcs[i], tai_offset_s, &reading);
		error_ns = phc_update(&set->phcs[i], &reading);
		worst_ns = error_ns > worst_ns ? error_ns : worst_ns;
	}
	return worst_ns;
}
