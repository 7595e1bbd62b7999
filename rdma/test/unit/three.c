/* three.c -- see three.h. */
#include "three.h"

#include <stdio.h>
#include <unistd.h>

#include "region/superblock.h"

uint8_t three_buffer[SIZE];
const char *three_uris[COUNT];
char three_uri[1024];

void three_make(void)
{
	for (unsigned i = 0; i < COUNT; i++) {
		struct farlog_ring_config config = {.size_bytes = SIZE,
			.record_len_max = 1024,
			.stream_id = 7,
			.salt = 0x1234567,
			.stream_name = "desk7/orders"};

		three_uris[i] = unit_tmpfs_uri("member");
		assert_int_equal(farlog_ring_format(three_uris[i], &config, NULL), FARLOG_OK);
	}
	snprintf(three_uri, sizeof(three_uri), "members:2 %s %s %s", three_uris[0], three_uris[1], three_uris[2]);
}

struct region *three_open_bytes(unsigned i)
{
	struct region *region;

	assert_int_equal(
		region_open(three_uris[i], &(struct region_options){.access = REGION_WRITE}, &region, NULL), FARLOG_OK);
	return region;
}

void three_copy(unsigned from, unsigned to, uint64_t from_lsn, uint64_t to_lsn)
{
	struct region *source = three_open_bytes(from);
	struct region *sink = three_open_bytes(to);
	uint8_t *base = (uint8_t *)(uintptr_t)sink->base;
	struct superblock told, own;

	assert_int_equal(
		superblock_load(source, three_uris[from], &told, NULL) + superblock_load(sink, three_uris[to], &own, NULL),
		FARLOG_OK);
	memcpy(told.ring_uuid, own.ring_uuid, sizeof(own.ring_uuid));
	told.generation += own.generation;
	assert_int_equal(superblock_store(sink, &told, false), FARLOG_OK);
	memcpy(base + LAYOUT_TAIL_HINT_OFF, source->base + LAYOUT_TAIL_HINT_OFF, 16);
	memcpy(base + LAYOUT_DATA_OFF + from_lsn, source->base + LAYOUT_DATA_OFF + from_lsn, to_lsn - from_lsn);
	source->ops->close(source);
	sink->ops->close(sink);
}

void three_forget_hints(unsigned i)
{
	struct region *region = three_open_bytes(i);

	region->ops->data.store_word(region, LAYOUT_TAIL_HINT_OFF, 0);
	region->ops->data.store_word(region, LAYOUT_DURABLE_HINT_OFF, 0);
	region->ops->close(region);
}

uint64_t three_write_to(unsigned i, uint32_t epoch, unsigned count)
{
	struct farlog_position position = {0};
	struct farlog_error error = {0};
	farlog_writer *writer;

	if (farlog_writer_open(three_uris[i], CONFIG(.level = FARLOG_LEVEL_VISIBLE, .epoch = epoch), &writer, &error) !=
		FARLOG_OK)
		fail_msg("open: %s", error.text);
	for (unsigned n = 0; n < count; n++)
		assert_int_equal(unit_append(writer, PAYLOAD_LEN, (uint8_t)epoch, &position), FARLOG_OK);
	farlog_writer_close(writer);
	return position.end_lsn;
}

farlog_reader *three_open_members(bool is_drain)
{
	return unit_read(three_uri, FARLOG_START_HEAD, is_drain);
}

void three_await_batch(farlog_reader *reader, struct farlog_batch *batch)
{
	int result = FARLOG_NOT_YET;

	for (unsigned n = 0; n < TRIES && result != FARLOG_OK; n++) {
		result = farlog_reader_read(reader, three_buffer, sizeof(three_buffer), batch);
		if (result != FARLOG_OK && result != FARLOG_NOT_YET && result != FARLOG_IO)
			break;
		if (result != FARLOG_OK)
			usleep(1000);
	}
	if (result != FARLOG_OK)
		fail_msg("read: %s", farlog_result_name(result));
}

uint64_t three_head_of(unsigned i)
{
	struct farlog_ring_status status;

	assert_int_equal(farlog_ring_inspect(three_uris[i], &status, NULL), FARLOG_OK);
	return status.head_lsn;
}
