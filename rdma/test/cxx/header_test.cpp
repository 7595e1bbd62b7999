// header_test.cpp -- the C++ layer compiles without exceptions, does what the C calls do, and allocates nothing while
// it appends.
#include <farlog/consume.hpp>
#include <farlog/farlog.hpp>

#include "allocations.hpp"
#include "rings.hpp"

#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <vector>

using farlog::result;
static_assert(!std::is_copy_constructible_v<farlog::writer> && std::is_nothrow_move_constructible_v<farlog::writer>);
static_assert(!std::is_copy_constructible_v<farlog::shared_writer> &&
	std::is_nothrow_move_constructible_v<farlog::shared_writer>);
static_assert(!std::is_copy_constructible_v<farlog::reader> && std::is_nothrow_move_constructible_v<farlog::reader>);
static_assert(!std::is_copy_constructible_v<farlog::claim> && std::is_nothrow_move_constructible_v<farlog::claim>);
static_assert(noexcept(std::declval<farlog::writer &>().append("x")) &&
	noexcept(std::declval<farlog::shared_writer &>().append("x")) &&
	noexcept(std::declval<farlog::claim &>().commit()));

static void append_and_read(const char *uri)
{
	auto writer = farlog::writer::open(uri, visible());
	check(static_cast<bool>(writer), "writer__open");
	if (!writer)
		return;
	const std::string order = "35=D|11=ORD-1";
	const std::vector<std::uint32_t> numbers{1, 2, 3};
	const auto first = writer->append(order, "ORD-1", 3);
	check(first && first.position.lsn == 128 && first.position.level == FARLOG_LEVEL_VISIBLE, "append__string");
	check(static_cast<bool>(writer->append(numbers)), "append__vector");
	const auto submitted = writer->submit("literal");
	check(submitted && writer->wait(submitted.position.end_lsn) == result::ok, "submit__wait");
	check(writer->append(farlog::bytes(order.data(), std::size_t{1} << 33)).result == result::too_large,
		"append__longer_than_any_record");
	check(writer->append("x", farlog::bytes(order.data(), 70000)).result == result::too_large,
		"append__key_longer_than_any");
	check(writer->resolve(first.position.lsn).position.seq == 1, "resolve__own");
	auto second = farlog::writer::open(uri, visible());
	check(!second && second.error().code() == result::held && !second.error().what().empty(), "writer__held");

	farlog::reader_options options;
	options.is_drain = true;
	auto drain = farlog::reader::open(uri, options);
	std::array<std::byte, 4096> buffer;
	farlog::batch batch;
	check(drain && drain->read(buffer, batch) == result::ok && batch.record_count == 4, "reader__read");
	std::vector<farlog::record> records;
	for (const farlog::record &record : batch)
		records.push_back(record);
	check(records.size() == 4 && records[0].is_control() && records[1].payload.text() == order &&
			records[1].key.text() == "ORD-1" && records[1].class_id == 3 && records[1].lsn == first.position.lsn &&
			records[2].payload.size() == 12 && records[3].payload.text() == "literal" && records[3].key.empty() &&
			records[3].seq == 3,
		"batch__records");
	check(drain->release(batch) == result::ok && writer->cursors().head_lsn == batch.next_lsn, "reader__release");
	check(drain->read(buffer, batch) == result::not_yet && batch.begin() == batch.end(), "reader__nothing_new");
	farlog::writer moved = *std::move(writer);
	check(writer->append("x").result == result::closed && !*writer, "writer__moved_from_is_closed");
	check(moved.recovery().epoch == 1 && moved.close() == result::ok && !moved && moved.close() == result::closed,
		"writer__closed_twice");
}

static void claim_and_commit(const char *uri)
{
	auto writer = farlog::writer::open(uri, visible());
	auto claim = writer->claim(5, "K", 9);
	check(claim && claim.payload().size() == 5, "claim__room");
	std::memcpy(claim.payload().data(), "claim", 5);
	auto moved = std::move(claim);
	check(!claim && claim.commit().result == result::invalid, "claim__moved_from");
	const auto done = moved.commit();
	check(done && !moved && moved.commit().result == result::invalid, "claim__committed_once");
	{
		const auto dropped = writer->claim(7);
		check(static_cast<bool>(dropped), "claim__dropped");
	}
	auto stale = writer->claim(5000);
	check(writer->append(std::string(5000, 'x')) && stale.commit().result == result::invalid, "claim__ended_by_append");
	check(writer->claim(UINT32_MAX).refused() == result::too_large, "claim__too_large");
	check(farlog::writer().claim(1).refused() == result::closed, "claim__closed");

	std::array<farlog::entry, 3> entries{farlog::entry("a", "1"), farlog::entry("b"), farlog::entry("c", {}, 4)};
	std::array<farlog::position, 3> positions;
	const auto group = writer->append_batch(entries, positions);
	check(group && group.done == 3 && positions[2].seq == positions[0].seq + 2, "append_batch__acknowledged");
	check(writer->append_batch(entries, farlog::span<farlog::position>(positions.data(), 2)).result == result::invalid,
		"append_batch__no_room");
	check(static_cast<bool>(writer->heartbeat()), "heartbeat");

	auto reader = farlog::reader::open(uri);
	std::vector<std::byte> buffer(1 << 16);
	farlog::batch batch;
	std::string texts;
	check(reader->read(buffer, batch) == result::ok, "reader__beside");
	for (const farlog::record &record : batch)
		if (!record.is_control() && record.payload.size() < 10)
			texts += std::string(record.payload.text()) + ",";
	check(texts == "claim,a,b,c,", "claim__only_what_was_committed");
}

static void consume(const char *uri)
{
	auto writer = farlog::writer::open(uri, visible());
	const std::uint16_t classes[] = {7};
	farlog::consumer_config config{};
	farlog::consumed item;
	std::string texts;

	config.ring_uri = uri;
	config.start = FARLOG_CONSUME_END;
	config.classes = classes;
	config.class_count = 1;
	auto consumer = farlog::consumer::open(config);
	check(consumer && consumer->next(item) == result::not_yet && consumer->trouble().empty(), "consumer__nothing_yet");
	check(writer->append("one", "K", 7) && writer->append("other", {}, 8) && writer->append("two", {}, 7),
		"consumer__appended");
	while (consumer->next(item, std::chrono::milliseconds(1)) == result::ok)
		texts += std::string(item.payload_bytes().text()) + "/" + std::string(item.key_bytes().text()) + ",";
	check(texts == "one/K,two/,", "consumer__records_of_its_class");
	check(
		consumer->stats().record_count == 2 && consumer->stats().skipped_count == 1 && consumer->commit() == result::ok,
		"consumer__stats");
	farlog::consumer moved = *std::move(consumer);
	moved.close();
	check(!moved && moved.next(item) == result::closed && moved.commit() == result::closed, "consumer__closed");
	config.store_dir = "/nowhere";
	config.start = FARLOG_CONSUME_OLDEST;
	check(farlog::consumer::open(config).error().code() == result::invalid, "consumer__ring_without_a_stream");
}

static void fill_the_ring(const char *uri)
{
	auto options = visible();
	options.policy = farlog::policy::reject;
	auto writer = farlog::writer::open(uri, options);
	const std::string record(3000, 'x');
	farlog::outcome made;
	while ((made = writer->append(record)))
		;
	check(made.result == result::full && std::string(made.name()) == "FULL", "append__full");
	auto claim = writer->claim(3000);
	check(claim.commit().result == result::full && claim, "claim__stands_when_full");
	farlog::reader_options drain_options;
	drain_options.is_drain = true;
	auto drain = farlog::reader::open(uri, drain_options);
	std::vector<std::byte> buffer(1 << 20);
	farlog::batch batch;
	std::size_t count = 0;
	while (drain->read(buffer, batch) == result::ok) {
		count += static_cast<std::size_t>(std::distance(batch.begin(), batch.end()));
		check(count > 0 && drain->release(batch) == result::ok, "drain__release");
	}
	check(static_cast<bool>(claim.commit()), "claim__committed_after_drain");
	// Many laps: PADs are passed over, and what is read is what was counted.
	std::uint64_t wrong = 0;
	for (int i = 0; i < 2000; i++) {
		(void)writer->append(farlog::bytes(record.data(), static_cast<std::size_t>(i)));
		while (drain->read(buffer, batch) == result::ok) {
			wrong += batch.record_count != static_cast<std::uint64_t>(std::distance(batch.begin(), batch.end()));
			(void)drain->release(batch);
		}
	}
	check(wrong == 0 && writer->cursors().appended_lsn > 3u << 20, "batch__laps");
}

static void append_from_threads(const char *uri)
{
	auto shared = farlog::shared_writer::open(uri, visible());
	check(static_cast<bool>(shared), "shared__open_after_close");
	if (!shared)
		return;
	std::array<int, 2> acked{};
	std::vector<std::thread> threads;
	for (int &count : acked)
		threads.emplace_back([&] {
			for (int i = 0; i < 100; i++)
				count += static_cast<bool>(shared->append("x", {}, 0, std::chrono::seconds(10)));
		});
	for (auto &thread : threads)
		thread.join();
	check(acked[0] == 100 && acked[1] == 100 && shared->close() == result::ok, "shared__threads");
	check(shared->append("x").result == result::closed, "shared__closed");
}

static void allocate_nothing(const char *uri)
{
	auto writer = farlog::writer::open(uri, visible());
	auto drain = farlog::reader::open(uri);
	const std::string order(192, 'o');
	std::array<farlog::entry, 4> entries{
		farlog::entry(order), farlog::entry(order), farlog::entry(order), farlog::entry(order)};
	std::array<farlog::position, 4> positions;
	std::array<std::byte, 16384> buffer;
	farlog::batch batch;
	bool is_ok = true;
	std::uint64_t durable_lsn = 0, seen = 0;
	const long before = allocations;

	for (int i = 0; i < 200; i++) {
		is_ok = is_ok && writer->append(order, "KEY", 1) && writer->try_append(order) && writer->submit(order) &&
			writer->poll(durable_lsn) == result::ok && writer->append_batch(entries, positions);
		auto claim = writer->claim(100);
		is_ok = is_ok && claim.commit();
		while (drain->read(buffer, batch) == result::ok)
			for (const farlog::record &record : batch)
				seen += record.payload.size();
	}
	check(is_ok && seen > 0 && allocations == before, "hot_path__allocates_nothing");
	(void)writer->close();
	auto shared = farlog::shared_writer::open(uri, visible());
	const long between = allocations;
	for (int i = 0; i < 200; i++)
		is_ok = is_ok && shared->append(order, "KEY");
	check(is_ok && allocations == between, "hot_path__shared_allocates_nothing");
}

int main()
{
	const std::string path = "/dev/shm/farlog-cxx-" + std::to_string(getpid());
	const std::string uri = "mem:" + path;
	farlog_ring_config config{};

	config.size_bytes = 1 << 20;
	check(static_cast<bool>(farlog::ring::format(uri.c_str(), config)), "format__new");
	const auto again = farlog::ring::format(uri.c_str(), config);
	check(!again && again.error().code() == result::exists && again.error().what().find(uri) != std::string_view::npos,
		"format__exists");
	append_and_read(uri.c_str());
	claim_and_commit(uri.c_str());
	append_from_threads(uri.c_str());
	consume(uri.c_str());
	fill_the_ring(uri.c_str());
	check(farlog::ring::inspect(uri.c_str()).value().writer_epoch == 5, "inspect__epoch");
	check(farlog::ring::probe(uri.c_str()).value().level == FARLOG_LEVEL_VISIBLE, "probe__level");
	config.is_forced = 1;
	check(static_cast<bool>(farlog::ring::format(uri.c_str(), config)), "format__forced");
	allocate_nothing(uri.c_str());
	check(static_cast<bool>(farlog::ring::fence(uri.c_str(), 40)), "fence");
	auto options = visible();
	options.epoch = 3;
	check(farlog::writer::open(uri.c_str(), options).error().code() == result::fenced, "writer__fenced");
	unlink(path.c_str());
	std::printf("cxx: %d passed, %d failed\n", passed, failed);
	return failed != 0;
}
