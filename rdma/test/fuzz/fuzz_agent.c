/* fuzz_agent.c -- what a host agent answers: a reply of any bytes, over a real socket, is refused or becomes a grant
 * whose words end and whose descriptors are the caller's; nothing is left open.
 *
 * The first byte chooses how many descriptors come with the reply, and whether it begins as a good one does. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/grant.h"
#include "base/clock.h"

#define DESCRIPTORS_MAX 3u
#define FILE_NAME "farlog-fuzz-descriptor"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static struct stream_uri place = {.stream = "desk7/orders"};
static int listener;
static uint8_t reply_bytes[2 * AGENT_PACKET_LEN_MAX];
static size_t reply_len;
static unsigned descriptor_count;

static void check(int claim)
{
	if (!claim)
		abort();
}

/* answer -- one request after the other, by the bytes of the input that is tried. */
static void *answer(void *unused)
{
	static char request[AGENT_PACKET_LEN_MAX];
	int file = memfd_create(FILE_NAME, MFD_CLOEXEC);

	for (;;) {
		union {
			char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
			struct cmsghdr header;
		} control = {{0}};
		int fds[DESCRIPTORS_MAX] = {file, file, file};
		struct iovec buffer = {.iov_base = reply_bytes};
		struct msghdr message = {.msg_iov = &buffer, .msg_iovlen = 1};
		int fd = accept(listener, NULL, NULL);

		check(fd >= 0);
		if (recv(fd, request, sizeof(request), 0) > 0) { /* the input is whole: it was there before the request */
			buffer.iov_len = reply_len;
			if (descriptor_count > 0) {
				message.msg_control = &control;
				message.msg_controllen = CMSG_SPACE(descriptor_count * sizeof(int));
				control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
					.cmsg_type = SCM_RIGHTS,
					.cmsg_len = CMSG_LEN(descriptor_count * sizeof(int))};
				memcpy(CMSG_DATA(&control.header), fds, descriptor_count * sizeof(int));
			}
			(void)!sendmsg(fd, &message, MSG_NOSIGNAL);
		}
		close(fd);
	}
	return unused;
}

static void remove_socket(void)
{
	unlink(place.socket_path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	static char path[sizeof(address.sun_path)];
	pthread_t thread;

	(void)argc, (void)argv;
	snprintf(path, sizeof(path), "/tmp/farlog-fuzz-agent-%ld", (long)getpid());
	strcpy(address.sun_path, path);
	strcpy(place.socket_path, path);
	unlink(path);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	check(
		listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(listener, 8) == 0);
	check(clock_start() == 0 && atexit(remove_socket) == 0);
	return pthread_create(&thread, NULL, answer, NULL);
}

/* open_count -- descriptors of this process that are of the file that comes with replies. */
static unsigned open_count(void)
{
	DIR *directory = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned count = 0;

	check(directory != NULL);
	while ((entry = readdir(directory)) != NULL) {
		char to[64] = "";

		if (readlinkat(dirfd(directory), entry->d_name, to, sizeof(to) - 1) > 0)
			count += strstr(to, FILE_NAME) != NULL;
	}
	closedir(directory);
	return count;
}

static void check_grant(const struct agent_reply *reply)
{
	struct agent_rings rings;
	uint64_t number;

	if (agent_parse_rings(reply, &rings))
		check(memchr(rings.uri, '\0', sizeof(rings.uri)) != NULL && rings.uri[0] != '\0');
	(void)agent_number(reply, "epoch", &number);
	(void)agent_number(reply, "deadline-ns", &number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const char good[] = "ok\nuri mem:/x\nuuid 00112233445566778899aabbccddeeff\n";
	struct farlog_error error = {0};
	struct agent_reply reply;

	if (len < 2 || len - 1 > sizeof(reply_bytes) - sizeof(good))
		return 0;
	descriptor_count = data[0] % (DESCRIPTORS_MAX + 1);
	reply_len = data[0] & 4 ? sizeof(good) - 1 : 0;
	memcpy(reply_bytes, good, reply_len);
	memcpy(reply_bytes + reply_len, data + 1, len - 1);
	reply_len += len - 1;
	if (agent_ask(&place, "writer", "fuzz", 0, -1, &reply, &error) == FARLOG_OK)
		check_grant(&reply);
	if (reply.fd >= 0)
		close(reply.fd);
	check(memchr(error.text, '\0', sizeof(error.text)) != NULL);
	check(descriptor_count == 0 || open_count() == 1);
	return 0;
}
