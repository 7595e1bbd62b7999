/* health.h -- what an NVMe device says of its own health, what a device holds, and what becomes of a page that it does
 * not give. On top of farlog.h. */
#ifndef FARLOG_HEALTH_H
#define FARLOG_HEALTH_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FARLOG_HEALTH_LEN 512u

/* farlog_device_health -- the log page SMART / Health Information (02h, NVM Express Base Specification 2.0, section
 * 5.16.1.3) of the controller behind a namespace such as /dev/nvme1n1, byte for byte into page, which holds
 * FARLOG_HEALTH_LEN. Changes nothing. Errors: NOT_FOUND (no such device), UNSUPPORTED (no NVMe device, or one that does
 * not have the page), IO (this process may not ask, or the device does not answer; os_errno says). Any thread; blocks
 * for as long as the device takes, at most 5 s a try of the kernel's. */
FARLOG_API int farlog_device_health(const char *path, uint8_t *page, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_device_contents -- names what is on a block device or in a file that has no ring, into text of size bytes: a
 * file system, a partition table, or bytes that are not zero where a ring begins; "" = nothing. Changes nothing.
 * Without libblkid.so.1 it names that, as data that cannot be identified. Errors: IO (it cannot be read). Any thread;
 * blocks while the device is read. */
FARLOG_API int farlog_device_contents(
	const char *path, char *text, size_t size, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_guard_mappings -- from now on a page of a mem: ring that its media does not give (the disk fails the read, the
 * file was cut off, the memory is bad) makes the calls on that ring fail with IO, until it is opened again, instead of
 * ending the process by SIGBUS. For the whole process: a handler of SIGBUS, which gives what is not farlog's to the
 * handler that was there before. Call it once, before rings are opened: those opened before are not guarded. A handler
 * of SIGBUS that the program sets later must call this one for addresses that are not its own. A farlog_target gives
 * its clients no byte in the place of a lost page: their reads fail. It lets in nobody to the ring any more, until it
 * serves it again. Errors: IO; INVALID: called again, and another handler has been set since.
 * Any thread; does not block. */
FARLOG_API int farlog_guard_mappings(struct farlog_error *error) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
