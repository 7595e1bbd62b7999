// 03-append.cpp -- as 01-append.c, in C++: copied from memory once, then built in place. usage: 03-append [uri]
#include <cstdio>
#include <cstring>
#include <farlog/farlog.hpp>

static int fail(const farlog::error &error)
{
	std::fprintf(stderr, "%s\n", error.text);
	return 1;
}

int main(int argc, char **argv)
{
	const char *uri = argc > 1 ? argv[1] : "mem:orders.ring";
	farlog_ring_config ring{};
	ring.size_bytes = 1 << 20;
	ring.stream_name = "desk7/orders";
	const auto formatted = farlog::ring::format(uri, ring); // once in a ring's life
	if (!formatted && formatted.error().code() != farlog::result::exists)
		return fail(formatted.error());
	auto writer = farlog::writer::open(uri);
	if (!writer)
		return fail(writer.error());
	const auto order = writer->append("35=D|11=ORD-1|55=FLG|38=100", "ORD-1");
	auto claim = writer->claim(12, "ORD-1"); // room in the writer's own buffer: nothing is copied into it
	if (!order || !claim)
		return std::fprintf(stderr, "%s\n", order ? farlog::text(claim.refused()) : order.name()), 1;
	std::memcpy(claim.payload().data(), "35=F|41=ORD-", 12);
	const auto cancel = claim.commit();
	std::printf("%s lsn=%lu seq=%lu level=%s\n", cancel.name(), cancel.position.lsn, cancel.position.seq,
		farlog_level_name(cancel.position.level));
	return cancel && writer->close() == farlog::result::ok ? 0 : 1;
}
