/* far/ofi.h -- a client's link over libfabric: what its two files share. */
#ifndef FARLOG_FAR_OFI_H
#define FARLOG_FAR_OFI_H

#include "far/far.h"
#include "wire/lib_ofi.h"

/* what the provider does not take yet; two spans, a request and the few words of the header */
#define OFI_POST_COUNT_MAX 32u
#define OFI_NAP_LAST_NS 1000000u /* the longest that nothing wakes us from, where something might have to */

enum ofi_post_kind { OFI_POST_WRITE, OFI_POST_WORD, OFI_POST_READ, OFI_POST_REQUEST, OFI_POST_PERSIST };

struct ofi_post {
	enum ofi_post_kind kind;
	uint64_t flags;
	struct region_span span;
	struct far_request request;
};

struct ofi_link {
	struct far_link link; /* first */
	const struct lib_ofi *lib;
	struct uri uri;
	char text[URI_PATH_LEN_MAX];
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *copy_mr; /* only where the provider wants local memory registered */
	struct fid_mr *header_mr;
	void *copy_desc;
	struct far_done asked;
	unsigned persist_left; /* completions that the persist under way still needs */
	uint32_t flush_tag;    /* of the last request to flush */
	bool is_flushing;      /* its answer is waited for */
	bool is_read_left;
	uint64_t dialled[16]; /* the address; a struct sockaddr of whatever family */
	size_t dialled_len;
	/* that came instead of a target's in the last attempt; NULL: it was a target's, or there was none */
	const char *answer;
	unsigned idle_polls;
	unsigned post_first;
	unsigned post_count;
	struct ofi_post posts[OFI_POST_COUNT_MAX];
};

static inline struct ofi_link *ofi_of(struct far_link *link)
{
	return (struct ofi_link *)link;
}

/* ofi_link_connect, ofi_link_disconnect -- far_link_ops' connect and disconnect. */
int ofi_link_connect(struct far_link *link, const struct far_hello *hello, struct far_refusal *refusal,
	uint64_t timeout_ns, struct farlog_error *error) FARLOG_MUST_CHECK;
void ofi_link_disconnect(struct far_link *link);

#endif
