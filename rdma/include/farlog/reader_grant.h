/* reader_grant.h -- libfarlog: another grant for a reader that is open. On top of farlog.h.
 *
 * A reader of a ring on another host comes in by a grant's token, which is good for a while. An admitted reader stays
 * admitted, and comes in again after its connection has broken, for as long as the target runs; a target that was
 * restarted asks for a token that has not ended. A reader that was opened by "farlog://NAME" asks the host agent for
 * one by itself, and needs none of this. It is for programs that open "ofi:...", "verbs:..." or "members:..." by a
 * grant of his own, and asks the control plane for another one (AcquireReader) before that has ended. */
#ifndef FARLOG_READER_GRANT_H
#define FARLOG_READER_GRANT_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

/* farlog_reader_renew -- the token with which the reader is to come to this ring when its target does not take the one
 * before any more. ring_uuid has 16 bytes, grant_token FARLOG_TOKEN_LEN; both are copied. Of a reader of several rings
 * once for each. The connection that there is stays. Any thread, not while the reader is being closed; no input or
 * output, blocks for nobody but others who say so. Durable is nothing of it. OK: it is taken note of. INVALID: one of
 * them is missing, or more rings were named than a stream has. UNSUPPORTED: the reader was opened without a token, or
 * is a drain. */
FARLOG_API int farlog_reader_renew(
	farlog_reader *reader, const uint8_t *ring_uuid, const uint8_t *grant_token) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
