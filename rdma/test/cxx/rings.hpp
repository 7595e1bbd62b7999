// rings.hpp -- what the tests of the C++ layer share: counted checks, a ring in memory, and what is in it.
#ifndef FARLOG_TEST_RINGS_HPP
#define FARLOG_TEST_RINGS_HPP

#include <farlog/farlog.hpp>

#include <cstdio>
#include <string>
#include <unistd.h>
#include <vector>

inline int passed, failed;

inline void check(bool claim, const char *name)
{
	(claim ? passed : failed)++;
	if (!claim)
		std::printf("cxx: %s: FAILED\n", name);
}

// memory_ring -- a ring on tmpfs, gone at the end of its scope.
class memory_ring {
public:
	explicit memory_ring(const char *name, std::uint64_t size_bytes = 1 << 20, std::uint32_t record_len_max = 0)
		: path_("/dev/shm/farlog-cxx-" + std::to_string(getpid()) + "-" + name), uri_("mem:" + path_)
	{
		farlog_ring_config config{};

		config.size_bytes = size_bytes;
		config.record_len_max = record_len_max;
		check(static_cast<bool>(farlog::ring::format(uri_.c_str(), config)), "format");
	}
	~memory_ring() { unlink(path_.c_str()); }
	memory_ring(const memory_ring &) = delete;
	memory_ring &operator=(const memory_ring &) = delete;
	const std::string &uri() const { return uri_; }

private:
	std::string path_, uri_;
};

struct event {
	std::uint16_t class_id;
	std::string key, text;
};

// drainer -- takes the application's records out of a ring, in order.
class drainer {
public:
	explicit drainer(const std::string &uri) : buffer_(4 << 20)
	{
		farlog::reader_options options;

		options.is_drain = true;
		auto opened = farlog::reader::open(uri.c_str(), options);
		check(static_cast<bool>(opened), "drain__open");
		if (opened)
			reader_ = *std::move(opened);
	}
	std::vector<event> take()
	{
		std::vector<event> events;
		farlog::batch batch;

		while (reader_.read(farlog::span<std::byte>(buffer_.data(), buffer_.size()), batch) == farlog::result::ok) {
			for (const farlog::record &record : batch)
				if (!record.is_control())
					events.push_back(
						{record.class_id, std::string(record.key.text()), std::string(record.payload.text())});
			if (reader_.release(batch) != farlog::result::ok)
				check(false, "drain__release");
		}
		return events;
	}

private:
	std::vector<std::byte> buffer_;
	farlog::reader reader_;
};

inline farlog::writer_options visible()
{
	farlog::writer_options options;

	options.level = farlog::level::visible;
	options.counters_dir = "";
	return options;
}

#endif
