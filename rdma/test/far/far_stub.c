/* far_stub.c -- what a client makes of a target that lets it in with a welcome that is not ours, or not of our time.
 *
 * A listener of libfabric's own, which accepts whoever comes and says what the case tells it to say. */
#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>

#include "base/atomics.h"
#include "far_links.h"
#include "wire/lib_ofi.h"

#define STUB_URI "ofi:tcp://127.0.0.1:0"
#define TURN_MS 50
#define CONN_COUNT_MAX 8u /* a client tries a few times */

struct stub_conn {
	struct fi_info *info;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_ep *ep;
};

struct stub {
	const struct lib_ofi *lib;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fid_pep *pep;
	pthread_t thread;
	uint64_t is_over;
	char uri[64];
	const void *welcome;
	size_t welcome_len;
	unsigned conn_count;
	struct stub_conn conns[CONN_COUNT_MAX];
};

static void let_in(struct stub *stub, struct fi_info *info)
{
	struct stub_conn *conn = &stub->conns[stub->conn_count];
	struct fi_cq_attr cq_attr = {.wait_obj = FI_WAIT_FD};

	if (stub->conn_count == CONN_COUNT_MAX) {
		stub->lib->freeinfo(info);
		return;
	}
	stub->conn_count++;
	conn->info = info;
	CHECK(fi_domain(stub->fabric, info, &conn->domain, NULL) == 0 &&
		fi_cq_open(conn->domain, &cq_attr, &conn->cq, NULL) == 0);
	CHECK(fi_endpoint(conn->domain, info, &conn->ep, NULL) == 0 && fi_ep_bind(conn->ep, &stub->eq->fid, 0) == 0);
	CHECK(fi_ep_bind(conn->ep, &conn->cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_enable(conn->ep) == 0);
	CHECK(fi_accept(conn->ep, stub->welcome, stub->welcome_len) == 0);
}

static void *keep_stub(void *context)
{
	struct stub *stub = context;

	while (!atomic_load_acquire(&stub->is_over)) {
		union {
			struct fi_eq_cm_entry entry;
			uint8_t room[512];
		} event;
		struct fi_eq_err_entry failure = {0};
		uint32_t kind = 0;
		ssize_t len = fi_eq_sread(stub->eq, &kind, &event, sizeof(event), TURN_MS, 0);

		if (len == -FI_EAVAIL)
			(void)fi_eq_readerr(stub->eq, &failure, 0);
		else if (len >= (ssize_t)sizeof(event.entry) && kind == FI_CONNREQ)
			let_in(stub, event.entry.info);
	}
	return NULL;
}

static bool stub_open(struct stub *stub, const void *welcome, size_t welcome_len)
{
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
	struct sockaddr_in address = {0};
	size_t address_len = sizeof(address);
	struct uri uri;

	memset(stub, 0, sizeof(*stub));
	stub->welcome = welcome;
	stub->welcome_len = welcome_len;
	CHECK(lib_ofi_load(&stub->lib, NULL) == FARLOG_OK && uri_parse(STUB_URI, &uri, NULL) == FARLOG_OK);
	CHECK(ofi_info(stub->lib, STUB_URI, &uri, FI_SOURCE, &stub->info, NULL) == FARLOG_OK);
	CHECK(stub->lib->fabric(stub->info->fabric_attr, &stub->fabric, NULL) == 0 &&
		fi_eq_open(stub->fabric, &eq_attr, &stub->eq, NULL) == 0);
	CHECK(fi_passive_ep(stub->fabric, stub->info, &stub->pep, NULL) == 0 &&
		fi_pep_bind(stub->pep, &stub->eq->fid, 0) == 0);
	if (fi_listen(stub->pep) != 0 || fi_getname(&stub->pep->fid, &address, &address_len) != 0) {
		CHECK(!"it listens");
		return false;
	}
	snprintf(stub->uri, sizeof(stub->uri), "ofi:tcp://127.0.0.1:%u/ring", ntohs(address.sin_port));
	return pthread_create(&stub->thread, NULL, keep_stub, stub) == 0;
}

static void stub_close(struct stub *stub)
{
	atomic_store_release(&stub->is_over, 1);
	pthread_join(stub->thread, NULL);
	for (unsigned i = 0; i < stub->conn_count; i++) {
		OFI_CLOSE(stub->conns[i].ep);
		OFI_CLOSE(stub->conns[i].cq);
		OFI_CLOSE(stub->conns[i].domain);
		stub->lib->freeinfo(stub->conns[i].info);
	}
	OFI_CLOSE(stub->pep);
	OFI_CLOSE(stub->eq);
	OFI_CLOSE(stub->fabric);
	stub->lib->freeinfo(stub->info);
}

/* met -- the client says what it expected and what it found, with the URI, and has made no copy of anything. */
static void met(const char *what, const void *welcome, size_t welcome_len, int result, const char *text)
{
	struct far_link_bed made;
	struct stub stub;

	snprintf(now_testing, sizeof(now_testing), "stub: %s", what);
	if (!stub_open(&stub, welcome, welcome_len))
		return;
	CHECK(link_try(&made, stub.uri, "ring", 'r', REGION_ROLE_READER, 0, FAR_VERSION, LONG_NS) == result);
	if (strstr(made.error.text, text) == NULL || strstr(made.error.text, stub.uri) == NULL) {
		printf("far: %s: expected \"%s\" and the URI, got \"%s\"\n", now_testing, text, made.error.text);
		failed++;
	}
	CHECK(made.link->copy == NULL);
	link_free(&made);
	stub_close(&stub);
}

/* words_without_end -- what a target says of its region fills its place: nothing behind it is taken for its words. */
static void words_without_end(struct far_welcome welcome)
{
	struct far_link link = {0};

	snprintf(now_testing, sizeof(now_testing), "stub: words without an end");
	memset(welcome.probe, 'x', sizeof(welcome.probe));
	CHECK(far_parse_welcome(&link, "ofi:", &welcome, sizeof(welcome), FARLOG_IO, NULL) == FARLOG_OK);
	CHECK(memchr(link.welcome.probe, '\0', sizeof(link.welcome.probe)) != NULL);
}

void test_stub(void)
{
	struct far_welcome welcome = {.magic = FAR_WELCOME_MAGIC, .version = FAR_VERSION + 1, .size_bytes = RING_BYTES};
	char text[96];

	snprintf(text, sizeof(text), "the target speaks version %u; expected %u", FAR_VERSION + 1, FAR_VERSION);
	met("a welcome of the next version", &welcome, sizeof(welcome), FARLOG_UNSUPPORTED, text);
	welcome.version = 0;
	snprintf(text, sizeof(text), "the target speaks version 0; expected %u", FAR_VERSION);
	met("a welcome of version 0", &welcome, sizeof(welcome), FARLOG_UNSUPPORTED, text);
	welcome.version = FAR_VERSION;
	welcome.size_bytes = LAYOUT_DATA_OFF;
	met("a ring without data", &welcome, sizeof(welcome), FARLOG_CORRUPT, "names a region of 12288 bytes");
	welcome.size_bytes = RING_BYTES + 1;
	met("a ring of half a block", &welcome, sizeof(welcome), FARLOG_CORRUPT, "names a region of 1048577 bytes");
	welcome.size_bytes = RING_BYTES;
	words_without_end(welcome);
	welcome.level = FARLOG_LEVEL_STORED;
	met("a level that no region gives", &welcome, sizeof(welcome), FARLOG_CORRUPT, "names level 4");
	welcome.magic = FAR_HELLO_MAGIC;
	met("another magic", &welcome, sizeof(welcome), FARLOG_IO, "no farlog target: magic 48474c46");
	met("half a welcome", &welcome, 16, FARLOG_IO, "16 bytes of welcome; expected");
}
