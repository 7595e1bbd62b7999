/* far_hostile.c -- those who mean no good or are something else: at the target's port, at the port that a client was
 * told, and with keys and requests that they should not have. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "far_links.h"
#include "wire/lib_ofi.h"

#define CLIENT_COUNT 40u

static unsigned port_of(const char *uri)
{
	return (unsigned)atoi(strrchr(uri, ':') + 1);
}

static int connect_unauthenticated(unsigned port, const void *bytes, size_t len)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || (len > 0 && write(fd, bytes, len) < 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Clients of other protocols at the target's port, among them one that stops in the middle of each kind of handshake
 * that there might be: whoever is connected goes on, and others still get in. */
static void clients_of_other_protocols(struct bed *bed)
{
	static const char request[] = "GET / HTTP/1.0\r\n\r\n";
	uint8_t head[32] = {0};
	int fds[CLIENT_COUNT];
	unsigned count = 0;
	unsigned port = port_of(bed->host.uri);
	farlog_writer *writer;
	farlog_reader *reader = NULL;
	struct farlog_reader_config config = {0};
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_position position;
	struct farlog_error error = {0};

	snprintf(now_testing, sizeof(now_testing), "hostile: clients of other protocols");
	writer = open_far_writer(bed, "", 2, 'a', &error);
	CHECK_OK(error.result);
	fds[count++] = connect_unauthenticated(port, "", 0);
	fds[count++] = connect_unauthenticated(port, "G", 1);
	fds[count++] = connect_unauthenticated(port, request, sizeof(request));
	fds[count++] = connect_unauthenticated(port, head, sizeof(head));
	/* A complete head of libfabric's handshake that announces more than comes: version, kind, length. */
	for (uint8_t version = 1; version <= 6; version++)
		for (uint8_t kind = 0; kind < 4; kind++) {
			head[0] = version;
			head[1] = kind;
			head[3] = 40;
			fds[count++] = connect_unauthenticated(port, head, sizeof(head));
		}
	for (uint64_t i = 0; i < 50 && writer != NULL; i++)
		CHECK(append_number(writer, i, LONG_NS, &position) == FARLOG_OK);
	host_token('s', token);
	config.grant_token = token;
	CHECK_OK(farlog_reader_open(bed->uri, &config, &reader, &error));
	farlog_reader_close(reader);
	farlog_writer_close(writer);
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
}

/* ---------------------------------------------------------------- keys and requests */

/* A key opens what it was made for, as long as its connection lives: a reader's does not write, one of a connection
 * that has ended opens nothing, one of another tenant opens nothing, and none reaches beyond the ring. */
static void keys(struct bed *bed)
{
	struct far_link_bed writer;
	struct far_link_bed reader;
	struct far_link_bed old;
	struct far_link_bed other;
	char other_uri[192];
	uint64_t key;

	snprintf(now_testing, sizeof(now_testing), "hostile: keys");
	await_no_writer(bed);
	link_connect(&writer, bed->uri, "ring", 'b', REGION_ROLE_WRITER, 3);
	CHECK(try_write(writer.link, TRIED_OFF, 0x1111) == FARLOG_OK && word_at_target(bed, TRIED_OFF) == 0x1111);
	link_connect(&reader, bed->uri, "ring", 'r', REGION_ROLE_READER, 0);
	CHECK(try_read(reader.link) == FARLOG_OK && *(uint64_t *)(reader.link->copy + TRIED_OFF) == 0x1111);
	CHECK(try_write(reader.link, TRIED_OFF, 0x2222) == FARLOG_IO && reader.link->broken[0] != '\0');
	CHECK(word_at_target(bed, TRIED_OFF) == 0x1111);
	link_free(&reader);

	link_connect(&old, bed->uri, "ring", 'r', REGION_ROLE_READER, 0);
	key = old.link->welcome.keys[FAR_PIECE_WRITER];
	CHECK(key != writer.link->welcome.keys[FAR_PIECE_WRITER]);
	link_free(&old);
	link_connect(&reader, bed->uri, "ring", 'r', REGION_ROLE_READER, 0);
	CHECK(reader.link->welcome.keys[FAR_PIECE_WRITER] != key);
	reader.link->welcome.keys[FAR_PIECE_WRITER] = key;
	CHECK(try_read(reader.link) == FARLOG_IO);
	link_free(&reader);

	link_connect(&reader, bed->uri, "ring", 'r', REGION_ROLE_TAILS, 0);
	CHECK(link_persist(reader.link, (struct region_span){LAYOUT_DATA_OFF, 64}) == FARLOG_IO);
	link_free(&reader);
	CHECK(link_try(&reader, bed->uri, "ring", 'b', REGION_ROLE_TAILS, 0, FAR_VERSION, LONG_NS) == FARLOG_INVALID);
	link_free(&reader);

	snprintf(other_uri, sizeof(other_uri), "%s/other", bed->host.uri);
	link_connect(&other, other_uri, "other", 'o', REGION_ROLE_READER, 0);
	other.link->welcome.keys[FAR_PIECE_WRITER] = writer.link->welcome.keys[FAR_PIECE_WRITER];
	CHECK(try_read(other.link) == FARLOG_IO);
	link_free(&other);

	CHECK(try_write(writer.link, RING_BYTES - 8, 0x3333) == FARLOG_IO); /* 64 bytes, of which 8 would fit */
	CHECK(word_at_target(bed, RING_BYTES - 8) == 0);
	link_free(&writer);
}

/* Whose role has been given back writes no more: neither where it has not noticed the end of its connection, nor by its
 * key on another one. What it had under way before it asked to leave is there. */
static void left(struct bed *bed)
{
	struct far_request leave = {.operation = FAR_LEAVE, .tag = 1};
	struct far_link_bed zombie;
	struct far_link_bed next;
	uint64_t key;

	snprintf(now_testing, sizeof(now_testing), "hostile: left");
	await_no_writer(bed);
	link_connect(&zombie, bed->uri, "ring", 'b', REGION_ROLE_WRITER, 3);
	key = zombie.link->welcome.keys[FAR_PIECE_WRITER];
	zombie.link->method = FARLOG_FLUSH_TARGET_CPU;
	*(uint64_t *)(zombie.link->copy + TRIED_OFF) = 0x4444;
	CHECK(zombie.link->ops->persist(zombie.link, &(struct region_span){TRIED_OFF, 64}, 1, UINT32_MAX) == FARLOG_OK);
	CHECK(zombie.link->ops->send(zombie.link, &leave) == FARLOG_OK);
	zombie.link->method = FARLOG_FLUSH_OFI_DELIVERY;
	await_no_writer(bed);
	(void)try_write(zombie.link, TRIED_OFF + 64, 0x5555);
	link_connect(&next, bed->uri, "ring", 'd', REGION_ROLE_WRITER, 4);
	CHECK(word_at_target(bed, TRIED_OFF) == 0x4444 && word_at_target(bed, TRIED_OFF + 64) == 0);
	next.link->welcome.keys[FAR_PIECE_WRITER] = key;
	CHECK(try_write(next.link, TRIED_OFF + 64, 0x6666) == FARLOG_IO);
	CHECK(word_at_target(bed, TRIED_OFF + 64) == 0);
	link_free(&zombie);
	link_free(&next);
}

void connect_and_read(const struct bed *bed, char token_letter)
{
	struct far_link_bed reader;

	link_connect(&reader, bed->uri, "ring", token_letter, REGION_ROLE_READER, 0);
	CHECK(try_read(reader.link) == FARLOG_OK);
	link_free(&reader);
}

static void requests(struct bed *bed)
{
	struct far_link_bed reader;
	uint64_t page = 4096;

	snprintf(now_testing, sizeof(now_testing), "hostile: requests");
	link_connect(&reader, bed->uri, "ring", 'r', REGION_ROLE_READER, 0);
	CHECK(link_ask(reader.link, (struct far_request){.operation = 77, .tag = 1}) == (uint32_t)-FARLOG_INVALID);
	CHECK(link_ask(reader.link, (struct far_request){.operation = FAR_FLUSH, .tag = 2, .span_count = 99}) ==
		(uint32_t)-FARLOG_INVALID);
	CHECK(link_ask(reader.link,
			  (struct far_request){.operation = FAR_FLUSH, .tag = 3, .span_count = 1, .spans = {{RING_BYTES, 1}}}) ==
		(uint32_t)-FARLOG_INVALID);
	CHECK(link_ask(reader.link,
			  (struct far_request){
				  .operation = FAR_FLUSH, .tag = 4, .span_count = 1, .spans = {{page, UINT64_MAX - page + 2}}}) ==
		(uint32_t)-FARLOG_INVALID);
	CHECK(link_ask(reader.link,
			  (struct far_request){.operation = FAR_FLUSH, .tag = 5, .span_count = 1, .spans = {{page, page}}}) ==
		(uint32_t)-FARLOG_INVALID); /* a reader has nothing to make durable */
	CHECK(link_ask(reader.link, (struct far_request){.operation = FAR_LOCKED, .tag = 6}) == 0);
	link_free(&reader);
}

static void hellos(struct bed *bed)
{
	struct far_link_bed made;

	snprintf(now_testing, sizeof(now_testing), "hostile: hellos");
	CHECK(
		link_try(&made, bed->uri, "ring", 'r', REGION_ROLE_READER, 0, FAR_VERSION + 1, LONG_NS) == FARLOG_UNSUPPORTED);
	CHECK(made.refusal.magic == FAR_REFUSAL_MAGIC && strstr(made.refusal.text, "version") != NULL);
	CHECK(strstr(made.error.text, bed->uri) != NULL);
	link_free(&made);
}

/* short_hello -- of 12 bytes, which no link of ours sends. */
static void short_hello(struct bed *bed)
{
	union {
		struct fi_eq_cm_entry entry;
		uint8_t room[512];
	} event;
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
	struct fi_cq_attr cq_attr = {.wait_obj = FI_WAIT_FD};
	struct far_hello hello = {.magic = FAR_HELLO_MAGIC, .version = FAR_VERSION};
	struct far_refusal refusal = {0};
	struct fi_eq_err_entry failure = {.err_data = &refusal, .err_data_size = sizeof(refusal)};
	const struct lib_ofi *lib;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct uri uri;
	uint32_t kind;
	ssize_t len;

	snprintf(now_testing, sizeof(now_testing), "hostile: short hello");
	CHECK(lib_ofi_load(&lib, NULL) == FARLOG_OK && uri_parse(bed->uri, &uri, NULL) == FARLOG_OK);
	CHECK(ofi_info(lib, bed->uri, &uri, 0, &info, NULL) == FARLOG_OK &&
		lib->fabric(info->fabric_attr, &fabric, NULL) == 0);
	CHECK(fi_eq_open(fabric, &eq_attr, &eq, NULL) == 0 && fi_domain(fabric, info, &domain, NULL) == 0);
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL) == 0 && fi_endpoint(domain, info, &ep, NULL) == 0);
	CHECK(
		fi_ep_bind(ep, &eq->fid, 0) == 0 && fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_enable(ep) == 0);
	CHECK(fi_connect(ep, info->dest_addr, &hello, 12) == 0);
	len = fi_eq_sread(eq, &kind, &event, sizeof(event), (int)(IN_TIME_NS / 1000000u), 0);
	CHECK(len == -FI_EAVAIL && fi_eq_readerr(eq, &failure, 0) > 0);
	if (failure.err_data != &refusal && failure.err_data_size == sizeof(refusal))
		memcpy(&refusal, failure.err_data, sizeof(refusal));
	CHECK(refusal.magic == FAR_REFUSAL_MAGIC && refusal.result == FARLOG_INVALID &&
		strstr(refusal.text, "12 bytes") != NULL);
	fi_close(&ep->fid);
	fi_close(&cq->fid);
	fi_close(&domain->fid);
	fi_close(&eq->fid);
	fi_close(&fabric->fid);
	lib->freeinfo(info);
}

/* ---------------------------------------------------------------- what a client may find at the port that it was
 * told */

struct other_server {
	int listener;
	unsigned port;
	const char *bytes; /* that it says to who connects; NULL: it hangs up */
	size_t len;
	pthread_t thread;
};

static void *serve_other(void *context)
{
	struct other_server *server = context;
	int fd = accept(server->listener, NULL, NULL);
	char drop[256];

	if (fd >= 0 && server->bytes != NULL) {
		if (server->len > 0 && write(fd, server->bytes, server->len) < 0)
			close(fd);
		while (read(fd, drop, sizeof(drop)) > 0)
			; /* until the client goes */
	}
	close(fd);
	return NULL;
}

static void client_meets(const char *what, const char *bytes, size_t len)
{
	struct other_server server = {.listener = socket(AF_INET, SOCK_STREAM, 0), .bytes = bytes, .len = len};
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t address_len = sizeof(address);
	struct far_link_bed made;
	char uri[96];
	int result;

	snprintf(now_testing, sizeof(now_testing), "hostile: client meets %s", what);
	CHECK(bind(server.listener, (struct sockaddr *)&address, address_len) == 0 && listen(server.listener, 4) == 0);
	CHECK(getsockname(server.listener, (struct sockaddr *)&address, &address_len) == 0);
	snprintf(uri, sizeof(uri), "ofi:tcp://127.0.0.1:%u/ring", ntohs(address.sin_port));
	CHECK(pthread_create(&server.thread, NULL, serve_other, &server) == 0);
	result = link_try(&made, uri, "ring", 'r', REGION_ROLE_READER, 0, FAR_VERSION, TIMEOUT_NS);
	CHECK(result == FARLOG_IO || result == FARLOG_NOT_FOUND);
	CHECK(made.refusal.magic == 0 && strstr(made.error.text, uri) != NULL);
	CHECK(strstr(made.error.text, "accepted the connection but is not a farlog target") != NULL);
	CHECK(made.took_ns < IN_TIME_NS);
	link_free(&made);
	pthread_join(server.thread, NULL);
	close(server.listener);
}

static void servers_of_other_protocols(void)
{
	static const char zeros[4096];
	/* A head of libfabric's handshake that accepts, and announces a welcome that does not come. */
	static const char half[32] = {3, 1, 0, 120};
	static const char banner[] = "SSH-2.0-OpenSSH_9.2p1 Debian\r\n";
	struct far_link_bed made;

	client_meets("silence", "", 0);
	client_meets("who hangs up", NULL, 0);
	client_meets("one byte", "x", 1);
	client_meets("another protocol", banner, sizeof(banner) - 1);
	client_meets("zeros", zeros, sizeof(zeros));
	client_meets("half a handshake", half, sizeof(half));
	snprintf(now_testing, sizeof(now_testing), "hostile: client meets nobody");
	CHECK(link_try(&made, "ofi:tcp://127.0.0.1:1/ring", "ring", 'r', REGION_ROLE_READER, 0, FAR_VERSION, TIMEOUT_NS) ==
		FARLOG_NOT_FOUND);
	CHECK(strstr(made.error.text, "ofi:tcp://127.0.0.1:1/ring") != NULL &&
		strstr(made.error.text, "no farlog target answers") != NULL);
	link_free(&made);
	CHECK(link_try(&made, "ofi:nosuch://127.0.0.1:1/ring", "ring", 'r', REGION_ROLE_READER, 0, FAR_VERSION,
			  TIMEOUT_NS) == FARLOG_UNSUPPORTED);
	CHECK(strstr(made.error.text, "nosuch") != NULL);
	link_free(&made);
	CHECK(link_try(&made, "ofi:tcp://no.such.host.invalid:1/ring", "ring", 'r', REGION_ROLE_READER, 0, FAR_VERSION,
			  TIMEOUT_NS) == FARLOG_NOT_FOUND);
	CHECK(strstr(made.error.text, "no.such.host.invalid") != NULL);
	link_free(&made);
}

int open_and_tell(const char *uri)
{
	struct farlog_error error = {0};
	farlog_target *target;
	int result = farlog_target_open(uri, &target, &error);

	printf("%s %s\n", farlog_result_name(result), error.text);
	return 0;
}

/* A file of that name that is no library comes first in the search. */
static void missing_library(void)
{
	char directory[] = "/tmp/farlog-far-XXXXXX";
	char path[128];
	char self[256] = {0};
	char command[512];
	char text[640] = "";
	FILE *out;

	snprintf(now_testing, sizeof(now_testing), "hostile: missing library");
	CHECK(mkdtemp(directory) != NULL && readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(path, sizeof(path), "%s/libfabric.so.1", directory);
	close(open(path, O_CREAT | O_WRONLY, 0644));
	snprintf(command, sizeof(command), "LD_LIBRARY_PATH=%s '%s' open ofi:tcp://127.0.0.1:0", directory, self);
	out = popen(command, "r");
	CHECK(out != NULL && fgets(text, sizeof(text), out) != NULL);
	CHECK(strncmp(text, "UNSUPPORTED", 11) == 0 && strstr(text, "libfabric.so.1") != NULL &&
		strstr(text, "libfabric1") != NULL);
	if (out != NULL)
		pclose(out);
	unlink(path);
	rmdir(directory);
}

/* who_was_refused -- a client comes to a ring by a token, in a version, and is not let in: the target knows who it was,
 * and counts it, as unauthenticated or at its ring. */
static void who_was_refused(
	struct bed *bed, const char *ring, char letter, uint16_t version, bool is_unauthenticated, const char *expected)
{
	unsigned unauthenticated[2] = {0, 0};
	unsigned refused[2] = {0, 0};
	unsigned all[2] = {0, 0};
	struct far_link_bed made;

	CHECK(host_ask(&bed->host, "refusals") && sscanf(bed->host.reply, "OK %u %u", &unauthenticated[0], &all[0]) == 2);
	CHECK(host_ask(&bed->host, "counters ring") && sscanf(bed->host.reply, "OK %*u %u", &refused[0]) == 1);
	CHECK(link_try(&made, bed->uri, ring, letter, REGION_ROLE_READER, 0, version, LONG_NS) != FARLOG_OK &&
		made.refusal.magic == FAR_REFUSAL_MAGIC);
	link_free(&made);
	CHECK(host_ask(&bed->host, "counters ring") && sscanf(bed->host.reply, "OK %*u %u", &refused[1]) == 1);
	CHECK(host_ask(&bed->host, "refusals") && sscanf(bed->host.reply, "OK %u %u", &unauthenticated[1], &all[1]) == 2);
	all[1] -= all[0]; /* more than one where libfabric lost an answer, and the link asked again */
	CHECK(all[1] > 0 && unauthenticated[1] == unauthenticated[0] + is_unauthenticated * all[1]);
	CHECK(refused[1] == refused[0] + !is_unauthenticated * all[1]);
	if (strstr(bed->host.reply, " peer=127.0.0.1:") == NULL || strstr(bed->host.reply, expected) == NULL) {
		printf("far: %s: expected a peer and \"%s\", got \"%s\"\n", now_testing, expected, bed->host.reply);
		failed++;
	}
}

static void refusals(struct bed *bed)
{
	snprintf(now_testing, sizeof(now_testing), "hostile: refusals are seen");
	who_was_refused(bed, "ring", 'x', FAR_VERSION, true, "ring=ring result=INVALID no grant with this token");
	who_was_refused(bed, "elsewhere", 'x', FAR_VERSION, true, "ring=not served here (name's CRC32C ");
	who_was_refused(bed, "ring", 'r', FAR_VERSION + 1, true, "ring= result=UNSUPPORTED client speaks version 3");
	who_was_refused(
		bed, "elsewhere", 'r', FAR_VERSION, false, "result=NOT_A_RING the grant with this token is for another ring");
	who_was_refused(
		bed, "ring", 'a', FAR_VERSION, false, "ring=ring result=INVALID the grant with this token is for another role");
}

void test_hostile(void)
{
	struct farlog_ring_config config = {.size_bytes = RING_BYTES, .is_forced = 1};
	struct bed bed;
	char other_path[160];
	char other_uri[192];

	if (bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") && CHECK_ASK(&bed.host, "grant ring 0 2 a") &&
		CHECK_ASK(&bed.host, "grant ring 0 3 b") && CHECK_ASK(&bed.host, "grant ring 0 4 d") &&
		CHECK_ASK(&bed.host, "grant ring 3 0 r") && CHECK_ASK(&bed.host, "grant ring 3 0 s")) {
		snprintf(other_path, sizeof(other_path), "%s.other", bed.path);
		snprintf(other_uri, sizeof(other_uri), "mem:%s", other_path);
		CHECK(farlog_ring_format(other_uri, &config, NULL) == FARLOG_OK);
		CHECK(
			host_ask(&bed.host, "serve other %s other-tenant", other_uri) && host_ask(&bed.host, "grant other 3 0 o"));
		clients_of_other_protocols(&bed);
		keys(&bed);
		left(&bed);
		requests(&bed);
		hellos(&bed);
		short_hello(&bed);
		refusals(&bed);
		snprintf(now_testing, sizeof(now_testing), "hostile: afterwards");
		CHECK(host_ask(&bed.host, "counters ring"));
		unlink(other_path);
	}
	bed_free(&bed);
	servers_of_other_protocols();
	missing_library();
}
