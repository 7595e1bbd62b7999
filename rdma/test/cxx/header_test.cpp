// header_test.cpp -- farlog.hpp compiles without exceptions, and its handles do what the C calls do.
#include <farlog/farlog.hpp>

#include <array>
#include <cstdio>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static int passed, failed;

static void check(bool claim, const char *name)
{
	(claim ? passed : failed)++;
	if (!claim)
		std::printf("cxx: %s: FAILED\n", name);
}

static void append_and_drain(const char *uri)
{
	farlog_writer_config config{};
	config.level = FARLOG_LEVEL_VISIBLE;
	config.counters_dir = "";
	auto writer = farlog::writer::open(uri, config);
	check(static_cast<bool>(writer), "writer__open");
	if (!writer)
		return;
	const std::string order = "35=D|11=ORD-1";
	const std::vector<std::uint32_t> numbers{1, 2, 3};
	const auto first = writer->append(order, "ORD-1", 3);
	check(first && first.position.lsn == 128 && first.position.level == FARLOG_LEVEL_VISIBLE, "append__string");
	check(static_cast<bool>(writer->append(numbers)), "append__vector");
	const auto submitted = writer->submit("literal");
	check(submitted && writer->wait(submitted.position.end_lsn) == FARLOG_OK, "submit__wait");
	check(writer->append(farlog::bytes(order.data(), std::size_t{1} << 33)).result == FARLOG_TOO_LARGE, "append__longer_than_any_record");
	check(writer->resolve(first.position.lsn).position.seq == 1, "resolve__own");
	auto second = farlog::writer::open(uri, config);
	check(!second && second.error().result == FARLOG_HELD && !second.error().what().empty(), "writer__held");

	farlog_reader_config drain_config{};
	drain_config.is_drain = 1;
	auto drain = farlog::reader::open(uri, drain_config);
	std::array<unsigned char, 4096> buffer;
	farlog_batch batch;
	check(drain && drain->read(buffer.data(), buffer.size(), batch) == FARLOG_OK && batch.record_count == 4, "reader__read");
	check(drain->release(batch) == FARLOG_OK && writer->cursors().head_lsn == batch.next_lsn, "reader__release");
	farlog::writer moved = std::move(*writer);
	check(!writer && moved.recovery().epoch == 1 && moved.close() == FARLOG_OK && !moved, "writer__moved_and_closed");
}

static void append_from_threads(const char *uri)
{
	farlog_writer_config config{};
	config.level = FARLOG_LEVEL_VISIBLE;
	config.counters_dir = "";
	auto shared = farlog::shared::open(uri, config);
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
	check(acked[0] == 100 && acked[1] == 100 && shared->close() == FARLOG_OK, "shared__threads");
}

int main()
{
	const std::string path = "/dev/shm/farlog-cxx-" + std::to_string(getpid());
	const std::string uri = "mem:" + path;
	farlog_ring_config ring{};
	farlog::error failure;

	ring.size_bytes = 1 << 20;
	check(farlog::format(uri.c_str(), ring, failure) == FARLOG_OK, "format__new");
	check(farlog::format(uri.c_str(), ring, failure) == FARLOG_EXISTS && failure.what().find(uri) != std::string_view::npos, "format__exists");
	append_and_drain(uri.c_str());
	append_from_threads(uri.c_str());
	unlink(path.c_str());
	std::printf("cxx: %d passed, %d failed\n", passed, failed);
	return failed != 0;
}
