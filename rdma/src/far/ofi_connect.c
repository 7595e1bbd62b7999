/* far/ofi_connect.c -- the client's end of a connection by libfabric: connecting and going. The data path is in
 * far/ofi.c.
 *
 * Everything but the copy is created again for each connection: what the last target knew, its keys among it, opens
 * nothing any more. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/err.h"
#include "far/ofi.h"

#define NAP_FIRST_NS 20000u
#define TRY_COUNT 5u /* connections until no answer counts as none */
#define HEADER_REGION_LEN LAYOUT_DATA_OFF
#define CM_DATA_LEN_MAX 256u

void ofi_link_disconnect(struct far_link *link)
{
	struct ofi_link *ofi = ofi_of(link);

	OFI_CLOSE(ofi->ep); /* first: from here on nothing of this connection reaches the copy */
	OFI_CLOSE(ofi->header_mr);
	OFI_CLOSE(ofi->copy_mr);
	OFI_CLOSE(ofi->cq);
	OFI_CLOSE(ofi->domain);
	OFI_CLOSE(ofi->eq);
	OFI_CLOSE(ofi->fabric);
	if (ofi->info != NULL)
		ofi->lib->freeinfo(ofi->info);
	ofi->info = NULL;
	ofi->copy_desc = NULL;
	ofi->persist_left = 0;
	ofi->is_flushing = ofi->is_read_left = false;
	ofi->post_first = ofi->post_count = 0;
}

/* open_endpoint -- 0 or -FI_E..., and *what says at what. */
static int open_endpoint(struct ofi_link *ofi, const char **what)
{
	enum fi_wait_obj wait_obj = ofi->link.ops->sleepers != NULL ? FI_WAIT_FD : FI_WAIT_NONE;
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = wait_obj};
	int failure;

	*what = "fabric";
	failure = ofi->lib->fabric(ofi->info->fabric_attr, &ofi->fabric, NULL);
	if (failure == 0)
		failure = fi_eq_open(ofi->fabric, &eq_attr, &ofi->eq, NULL);
	*what = failure == 0 ? "domain" : *what;
	if (failure == 0)
		failure = fi_domain(ofi->fabric, ofi->info, &ofi->domain, NULL);
	if (failure == 0)
		failure = fi_cq_open(ofi->domain, &cq_attr, &ofi->cq, NULL);
	*what = failure != 0         ? *what :
		ofi->uri.from[0] == '\0' ? "endpoint" :
								   "endpoint at the address of from=, which must be one of this host";
	if (failure == 0)
		failure = fi_endpoint(ofi->domain, ofi->info, &ofi->ep, NULL);
	if (failure == 0)
		failure = fi_ep_bind(ofi->ep, &ofi->eq->fid, 0);
	if (failure == 0)
		failure = fi_ep_bind(ofi->ep, &ofi->cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION);
	if (failure == 0)
		failure = fi_enable(ofi->ep);
	return failure;
}

static bool is_unreachable(int failure)
{
	return failure == FI_ECONNREFUSED || failure == FI_ETIMEDOUT || failure == FI_EHOSTUNREACH ||
		failure == FI_ENETUNREACH;
}

/* parse_refusal -- the connection was not made: by our target, or by another server at its address. */
static int parse_refusal(struct ofi_link *ofi, struct far_refusal *refusal, struct farlog_error *error)
{
	struct far_refusal said = {0};
	struct fi_eq_err_entry failure = {.err_data = &said, .err_data_size = sizeof(said)};

	if (fi_eq_readerr(ofi->eq, &failure, 0) < 0)
		return error_set(error, FARLOG_IO, 0, "connect to \"%s\": the event queue failed", ofi->text);
	if (failure.err_data_size == sizeof(said) && failure.err_data != &said && failure.err_data != NULL)
		memcpy(&said, failure.err_data, sizeof(said));
	if (failure.err_data_size >= sizeof(said) && said.magic == FAR_REFUSAL_MAGIC && said.result < 0) {
		said.text[sizeof(said.text) - 1] = '\0';
		*refusal = said;
		return error_set(error, said.result, 0, "target of \"%s\" refused: %s", ofi->text, said.text);
	}
	ofi->answer = "ended it"; /* the error's own text may be of the attempt: "Operation now in progress" */
	return error_set(error, is_unreachable(failure.err) ? FARLOG_NOT_FOUND : FARLOG_IO, 0,
		"connect to \"%s\": no farlog target answers at host %s, port %s: %s", ofi->text, ofi->uri.host, ofi->uri.port,
		ofi->lib->strerror(failure.err));
}

static int await_welcome(
	struct ofi_link *ofi, struct far_refusal *refusal, uint64_t until_ns, struct farlog_error *error)
{
	union {
		struct fi_eq_cm_entry entry;
		uint8_t bytes[sizeof(struct fi_eq_cm_entry) + CM_DATA_LEN_MAX];
	} answer;
	long nap_ns = NAP_FIRST_NS;

	for (;;) {
		uint32_t event = 0;
		ssize_t len = fi_eq_read(ofi->eq, &event, &answer, sizeof(answer), 0);

		if (len == -FI_EAVAIL)
			return parse_refusal(ofi, refusal, error);
		if (len >= (ssize_t)sizeof(answer.entry) && event == FI_CONNECTED)
			return far_parse_welcome(&ofi->link, ofi->text, answer.bytes + sizeof(answer.entry),
				(size_t)len - sizeof(answer.entry), FARLOG_IO, error);
		if (len != -FI_EAGAIN || clock_monotonic_ns() >= until_ns || far_is_connect_cancelled(&ofi->link)) {
			ofi->answer = len == -FI_EAGAIN ? "said nothing" : "said something else";
			return error_set(error, len == -FI_EAGAIN ? FARLOG_NOT_FOUND : FARLOG_IO, 0,
				"connect to \"%s\": no farlog target answers at host %s, port %s in time", ofi->text, ofi->uri.host,
				ofi->uri.port);
		}
		nanosleep(&(struct timespec){0, nap_ns}, NULL);
		nap_ns = nap_ns * 2 < (long)OFI_NAP_LAST_NS ? nap_ns * 2 : (long)OFI_NAP_LAST_NS;
	}
}

/* register_copy -- register it, and tell the target where its header lies. */
static int register_copy(struct ofi_link *ofi, struct farlog_error *error)
{
	struct far_link *link = &ofi->link;
	struct far_request header = {.operation = FAR_HEADER, .tag = FAR_LINK_TAG, .span_count = 1};
	int result = far_copy(link, link->welcome.size_bytes);
	int failure = 0;

	if (result != FARLOG_OK)
		return error_set(error, result, 0, "connect to \"%s\": a copy of %lu bytes: %s", ofi->text,
			link->welcome.size_bytes, farlog_result_text(result));
	if (ofi->info->domain_attr->mr_mode & FI_MR_LOCAL) {
		failure = ofi_register(
			ofi->domain, ofi->info, link->copy, link->copy_len, FI_READ | FI_WRITE | FI_SEND, &ofi->copy_mr);
		if (failure == 0)
			ofi->copy_desc = fi_mr_desc(ofi->copy_mr);
	}
	if (failure == 0)
		failure = ofi_register(ofi->domain, ofi->info, link->copy, HEADER_REGION_LEN, FI_REMOTE_WRITE, &ofi->header_mr);
	if (failure != 0)
		return error_set(error, FARLOG_IO, 0,
			"connect to \"%s\": register the copy's %lu bytes (memory that may be locked: ulimit -l): %s", ofi->text,
			link->copy_len, ofi->lib->strerror(-failure));
	header.spans[0].off = ofi_address(ofi->info, link->copy);
	header.spans[0].len = fi_mr_key(ofi->header_mr);
	/* What an earlier connection was answered is not an answer to this one's. */
	atomic_store_relaxed((uint64_t *)(link->copy + FAR_FLUSHED_OFF), 0);
	return link->ops->send(link, &header) == FARLOG_OK ?
		FARLOG_OK :
		error_set(error, FARLOG_IO, 0, "connect to \"%s\": %s", ofi->text, link->broken);
}

static int connect_once(struct far_link *link, const struct far_hello *hello, struct far_refusal *refusal,
	uint64_t until_ns, struct farlog_error *error)
{
	struct ofi_link *ofi = ofi_of(link);
	size_t data_size = 0;
	size_t option_len = sizeof(data_size);
	const char *what = "";
	char nobody[400];
	int failure;
	int result;

	ofi_link_disconnect(link);
	link->broken[0] = '\0';
	*refusal = (struct far_refusal){0};
	ofi->answer = NULL;
	result = ofi_info(ofi->lib, ofi->text, &ofi->uri, 0, &ofi->info, error);
	if (result != FARLOG_OK)
		return result;
	failure = open_endpoint(ofi, &what);
	if (failure == 0 && fi_getopt(&ofi->ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &data_size, &option_len) == 0 &&
		data_size < sizeof(struct far_welcome))
		result = error_set(error, FARLOG_UNSUPPORTED, 0,
			"connect to \"%s\": provider \"%s\" carries %zu bytes with a connection; expected %zu", ofi->text,
			ofi->uri.provider, data_size, sizeof(struct far_welcome));
	if (failure == 0 && result == FARLOG_OK) {
		snprintf(nobody, sizeof(nobody), "no farlog target answers at host %s, port %s", ofi->uri.host, ofi->uri.port);
		what = nobody;
		if (ofi->info->dest_addr != NULL && ofi->info->dest_addrlen <= sizeof(ofi->dialled))
			memcpy(ofi->dialled, ofi->info->dest_addr, ofi->dialled_len = ofi->info->dest_addrlen);
		failure = fi_connect(ofi->ep, ofi->info->dest_addr, hello, sizeof(*hello));
	}
	if (failure != 0)
		result = error_set(error, is_unreachable(-failure) ? FARLOG_NOT_FOUND : FARLOG_IO, 0,
			"connect to \"%s\": %s: %s", ofi->text, what, ofi->lib->strerror(-failure));
	if (result == FARLOG_OK)
		result = await_welcome(ofi, refusal, until_ns, error);
	if (result == FARLOG_OK)
		result = register_copy(ofi, error);
	if (result != FARLOG_OK)
		ofi_link_disconnect(link);
	return result;
}

/* libfabric 1.17's tcp provider sends the head of an answer and what belongs to it by two calls, and reads them by two
 * that do not wait: what comes late is lost, and with it why we were refused, or that we were not. So no answer is
 * taken for one only when it is none several times. */
int ofi_link_connect(struct far_link *link, const struct far_hello *hello, struct far_refusal *refusal,
	uint64_t timeout_ns, struct farlog_error *error)
{
	struct ofi_link *ofi = ofi_of(link);
	uint64_t until_ns = clock_after_ns(timeout_ns);
	long nap_ns = OFI_NAP_LAST_NS;

	for (unsigned i = 1;; i++) {
		int result = connect_once(link, hello, refusal, until_ns, error);

		if (result == FARLOG_OK || refusal->magic == FAR_REFUSAL_MAGIC)
			return result;
		if ((result != FARLOG_IO && result != FARLOG_NOT_FOUND) || i == TRY_COUNT || clock_monotonic_ns() >= until_ns ||
			far_is_connect_cancelled(link)) {
			if (ofi->answer != NULL)
				far_probe_listener(
					ofi->text, &ofi->uri, (const struct sockaddr *)ofi->dialled, ofi->dialled_len, ofi->answer, error);
			return result;
		}
		nanosleep(&(struct timespec){0, nap_ns}, NULL);
		nap_ns *= 2;
	}
}
