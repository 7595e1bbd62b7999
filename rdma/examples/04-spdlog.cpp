// 04-spdlog.cpp -- an application's logger whose every event is in a ring when the call returns. usage: 04-spdlog uri
// (of a ring)
#include <cstdio>
#include <farlog/spdlog_sink.hpp>
#include <spdlog/spdlog.h>

int main(int argc, char **argv)
{
	if (argc != 2)
		return std::fprintf(stderr, "usage: %s uri\n", argv[0]), 2;
	farlog::spdlog_options options;
	options.policy = farlog::spdlog_policy::block(std::chrono::seconds(1), farlog::spdlog_policy::action::raise);
	options.key = [](const spdlog::details::log_msg &event) { // "ORD-1 new ...": the first word is the order
		const std::string_view text(event.payload.data(), event.payload.size());
		return text.substr(0, text.find(' '));
	};
	try {
		auto log = spdlog::create<farlog::spdlog_sink_mt>("orders", argv[1], options);
		log->set_pattern("%Y-%m-%dT%H:%M:%S.%f %l %v");
		log->info("{} new {} shares at {}", "ORD-1", 100, 17.25);
		log->warn("{} rejected: {}", "ORD-2", "no such instrument");
	} catch (const spdlog::spdlog_ex &failure) { // the ring could not be opened
		return std::fprintf(stderr, "%s\n", failure.what()), 1;
	} catch (const farlog::append_error &failure) { // an event is not in the ring
		return std::fprintf(stderr, "%s\n", farlog::text(failure.result)), 1;
	}
	std::printf("logged level=persistent\n");
	return 0;
}
