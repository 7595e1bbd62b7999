/* far_links.c -- see far_links.h. */
#include "far_links.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"

int link_try(struct far_link_bed *made, const char *ring_uri, const char *name, char letter, uint8_t role,
	uint32_t epoch, uint16_t version, uint64_t timeout_ns)
{
	struct far_hello hello = {.magic = FAR_HELLO_MAGIC,
		.version = version,
		.role = role,
		.epoch = epoch,
		.ring_hash = crc32c_update(0, name, strlen(name)),
		.client_id = (uint64_t)letter << 32 | role};
	struct uri uri;
	uint64_t start_ns;
	int result;

	memset(made, 0, sizeof(*made));
	host_token(letter, hello.token);
	if (uri_parse(ring_uri, &uri, &made->error) != FARLOG_OK ||
		far_ofi.open(ring_uri, &uri, &made->link, &made->error) != FARLOG_OK) {
		CHECK(!"a link can be opened");
		exit(1);
	}
	start_ns = clock_monotonic_ns();
	result = made->link->ops->connect(made->link, &hello, &made->refusal, timeout_ns, &made->error);
	made->took_ns = clock_monotonic_ns() - start_ns;
	made->link->method = FARLOG_FLUSH_OFI_DELIVERY;
	return result;
}

void link_connect(
	struct far_link_bed *made, const char *ring_uri, const char *name, char letter, uint8_t role, uint32_t epoch)
{
	if (!check_ok(link_try(made, ring_uri, name, letter, role, epoch, FAR_VERSION, LONG_NS), "connect",
			made->error.text, __LINE__))
		exit(1);
}

void link_free(struct far_link_bed *made)
{
	uint8_t *copy = made->link->copy;
	uint64_t copy_len = made->link->copy_len;

	made->link->ops->disconnect(made->link);
	made->link->ops->close(made->link);
	if (copy != NULL)
		munmap(copy, copy_len);
}

int link_settle(struct far_link *link, uint64_t persist_tag, uint64_t read_tag)
{
	uint64_t until_ns = clock_after_ns(IN_TIME_NS);

	while (clock_monotonic_ns() < until_ns) {
		int result = link->ops->poll(link);

		if (result != FARLOG_OK ||
			((persist_tag == 0 || link->done.persist_tag == persist_tag) &&
				(read_tag == 0 || link->done.read_tag == read_tag)))
			return result;
	}
	return FARLOG_NOT_YET;
}

uint64_t word_at_target(const struct bed *bed, uint64_t off)
{
	uint64_t word = 0;
	int fd = open(bed->path, O_RDONLY);

	CHECK(fd >= 0 && pread(fd, &word, sizeof(word), (off_t)off) == sizeof(word));
	close(fd);
	return word;
}

static uint64_t tried; /* tags */

int link_persist(struct far_link *link, struct region_span span)
{
	int result = link->ops->persist(link, &span, 1, ++tried);

	return result == FARLOG_OK ? link_settle(link, tried, 0) : FARLOG_IO;
}

int try_write_by(struct far_link *link, enum far_piece piece, uint64_t off, uint64_t value)
{
	struct far_welcome told = link->welcome;
	/* where the ring begins, by this key */
	uint64_t start = told.data_addr != 0 ? told.data_addr : -far_piece_span(piece, RING_BYTES).off;
	int result;

	*(uint64_t *)(link->copy + TRIED_OFF) = value;
	link->welcome.data_addr = start + off - TRIED_OFF;
	link->welcome.keys[FAR_PIECE_WRITER] = told.keys[piece];
	result = link_persist(link, (struct region_span){TRIED_OFF, 64});
	link->welcome = told;
	return result;
}

int try_write(struct far_link *link, uint64_t off, uint64_t value)
{
	return try_write_by(link, FAR_PIECE_WRITER, off, value);
}

int try_read(struct far_link *link)
{
	if (link->ops->read(link, (struct region_span){TRIED_OFF, 64}, ++tried) != FARLOG_OK)
		return FARLOG_IO;
	return link_settle(link, 0, tried);
}

uint32_t link_answer(struct far_link *link, uint32_t tag)
{
	uint64_t until_ns = clock_after_ns(IN_TIME_NS);

	while (clock_monotonic_ns() < until_ns) {
		uint64_t word;

		CHECK(link->ops->poll(link) == FARLOG_OK);
		word = *(volatile uint64_t *)(link->copy + far_answer_off(tag));
		if (word >> 32 == tag)
			return (uint32_t)word;
	}
	CHECK(!"an answer comes");
	return 0;
}

uint32_t link_ask(struct far_link *link, struct far_request request)
{
	CHECK(link->ops->send(link, &request) == FARLOG_OK);
	return link_answer(link, request.tag);
}
