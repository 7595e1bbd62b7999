/* fuzz_answer.c -- what a target answers: a welcome of any bytes is refused, or becomes a contract whose words end.
 *
 * The first two bytes choose the transport and the flush method that the URI names; magic, version and size are made
 * right for most inputs, so that what is behind them is reached. */
#include <stdlib.h>
#include <string.h>

#include "far/far.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check(int claim)
{
	if (!claim)
		abort();
}

static void check_contract(const struct farlog_contract *contract)
{
	check(memchr(contract->kind_name, '\0', sizeof(contract->kind_name)) != NULL);
	check(memchr(contract->flush_name, '\0', sizeof(contract->flush_name)) != NULL);
	check(memchr(contract->probe, '\0', sizeof(contract->probe)) != NULL);
	check(contract->level <= FARLOG_LEVEL_PERSISTENT && contract->size_bytes > LAYOUT_DATA_OFF);
}

/* make_welcome -- of these bytes, on the heap and no longer than they are: one beyond is seen by the sanitizer. */
static uint8_t *make_welcome(const uint8_t *data, size_t len, unsigned choice)
{
	uint8_t *raw = malloc(len + !len);
	struct far_welcome welcome;

	if (raw == NULL)
		abort();
	memcpy(raw, data, len);
	if (len < sizeof(welcome) || choice % 8 == 0)
		return raw;
	memcpy(&welcome, raw, sizeof(welcome));
	welcome.magic = FAR_WELCOME_MAGIC;
	welcome.version = FAR_VERSION;
	welcome.size_bytes = LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN * (1 + welcome.size_bytes % 64);
	memcpy(raw, &welcome, sizeof(welcome));
	return raw;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const char *const flushes[] = {"", "auto", "rdma-read", "ofi-commit", "target-cpu", "nothing"};
	struct farlog_contract contract;
	struct farlog_error error = {0};
	struct far_link *link;
	struct uri uri = {0};
	uint8_t *welcome;
	unsigned choice;

	if (len < 2)
		return 0;
	choice = data[0];
	strcpy(uri.flush, flushes[data[1] % (sizeof(flushes) / sizeof(flushes[0]))]);
	welcome = make_welcome(data + 2, len - 2, choice);
	link = calloc(1, sizeof(*link)); /* on the heap: so is a transport's */
	if (link == NULL)
		abort();
	if (far_parse_welcome(link, "ofi:tcp://host:1/ring", welcome, len - 2, FARLOG_IO, &error) == FARLOG_OK) {
		const struct far_transport *transport = choice & 16 ? &far_verbs : &far_ofi;

		if (far_choose_method(link, transport, "ofi:tcp://host:1/ring", &uri, &error) == FARLOG_OK) {
			far_fill_contract(link, transport, &contract);
			check_contract(&contract);
		}
	}
	check(memchr(error.text, '\0', sizeof(error.text)) != NULL);
	free(link);
	free(welcome);
	return 0;
}
