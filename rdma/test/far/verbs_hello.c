/* verbs_hello.c -- hellos that a target refuses: its own words reach the client over the connection manager, and nobody
 * is let in. */
#include "verbs_pair.h"

#include <string.h>

/* refuse_hello -- the target's own words reach the client over the connection manager, and nobody is let in. */
static void refuse_hello(const struct far_hello *hello, const char *condition, int result, const char *part)
{
	uint64_t admitted_before = pair_counters("mine").admitted_count;
	struct farlog_error error = {0};
	struct far_refusal refusal;
	struct far_link *link = NULL;
	struct uri uri;
	char text[256];

	pair_condition = condition;
	pair_far_uri("mine", "", text, sizeof(text));
	CHECK(uri_parse(text, &uri, &error) == FARLOG_OK && far_verbs.open(text, &uri, &link, &error) == FARLOG_OK);
	CHECK(link->ops->connect(link, hello, &refusal, 5000000000u, &error) == result);
	CHECK(refusal.magic == FAR_REFUSAL_MAGIC && refusal.version == FAR_VERSION && refusal.result == result &&
		strstr(error.text, part) != NULL);
	printf("verbs: %s: %s\n", condition, error.text);
	CHECK(pair_counters("mine").admitted_count == admitted_before && pair_counters("mine").writer_count == 0);
	link->ops->disconnect(link);
	link->ops->close(link);
}

void hellos_are_refused(void)
{
	struct farlog_grant granted =
		pair_grant("mine", FARLOG_GRANT_WRITER, (uint32_t)pair_counters("mine").admitted_count + 1);
	/* nobody's, by RFC 5737 */
	const struct farlog_network elsewhere = {
		.address = {[10] = 0xFF, [11] = 0xFF, [12] = 192, [14] = 2, [15] = 99}, .bit_count = 128};
	struct far_hello hello = pair_hello("mine", &granted);

	hello.version++;
	refuse_hello(&hello, "hello of a later version", FARLOG_UNSUPPORTED, "client speaks version 3; expected 2");
	hello.version = FAR_VERSION;
	hello.magic++;
	refuse_hello(&hello, "hello of somebody else", FARLOG_INVALID, "no farlog client");
	granted.expires_ns = 1;
	for (unsigned i = 0; i < FARLOG_TOKEN_LEN; i++)
		granted.token[i] = (uint8_t)~granted.token[i];
	CHECK_OK(farlog_target_grant(pair_target, "mine", &granted, &error));
	hello = pair_hello("mine", &granted);
	refuse_hello(&hello, "expired token", FARLOG_INVALID, "the grant has expired; acquire a new one");
	granted.expires_ns = 0;
	CHECK_OK(farlog_target_grant_from(pair_target, "mine", &granted, &elsewhere, 1, &error));
	refuse_hello(&hello, "token of another host", FARLOG_INVALID, "a host that did not name this address");
}
