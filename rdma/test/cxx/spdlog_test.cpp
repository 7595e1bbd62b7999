// spdlog_test.cpp -- the spdlog sink on real rings, read back. usage: spdlog_test [rounds of SIGKILL]; SEED=n repeats
// their moments.
#include <farlog/spdlog_sink.hpp>

#include <spdlog/async.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>

#include "allocations.hpp"
#include "rings.hpp"

using namespace std::chrono_literals;
using farlog::spdlog_options;
using farlog::spdlog_policy;
using farlog::spdlog_sink_mt;

static spdlog_options with(spdlog_policy policy)
{
	spdlog_options options;

	options.policy = policy;
	return options;
}

static std::shared_ptr<spdlog::logger> logger_on(std::shared_ptr<spdlog_sink_mt> sink)
{
	auto log = std::make_shared<spdlog::logger>("test", std::move(sink));

	log->set_pattern("%v");
	log->set_level(spdlog::level::trace);
	return log;
}

static std::shared_ptr<spdlog_sink_mt> sink_on(const memory_ring &ring, spdlog_options options = {})
{
	return std::make_shared<spdlog_sink_mt>(ring.uri(), std::move(options), visible());
}

// What a logging call that returned has left behind when its process was killed: for each thread the last event that
// returned.
constexpr int kill_threads = 3;
struct progress {
	std::atomic<int> returned[kill_threads];
};

[[noreturn]] static void log_until_killed(const std::string &uri, int round, progress *seen)
{
	auto log = logger_on(std::make_shared<spdlog_sink_mt>(
		uri, with(spdlog_policy::block(20s, spdlog_policy::action::raise)), visible()));
	std::vector<std::thread> threads;

	for (int t = 0; t < kill_threads; t++)
		threads.emplace_back([=] {
			for (int n = 1;; n++) {
				log->info("{} {} {} {:*<{}}", round, t, n, "", n % 200);
				seen->returned[t].store(n, std::memory_order_release);
			}
		});
	for (;;)
		pause();
}

// Whatever returned is there, in order per thread, and at most the one event more that was under way.
static bool is_whole(const std::vector<event> &events, int round, const progress &seen)
{
	int last[kill_threads] = {};

	for (const event &one : events) {
		int of_round, thread, number;
		if (std::sscanf(one.text.c_str(), "%d %d %d", &of_round, &thread, &number) != 3 || of_round != round ||
			number != ++last[thread])
			return std::printf("cxx: round %d: \"%s\" is out of order\n", round, one.text.c_str()), false;
	}
	for (int t = 0; t < kill_threads; t++)
		if (last[t] < seen.returned[t] || last[t] > seen.returned[t] + 1)
			return std::printf("cxx: round %d: thread %d logged %d, the ring has %d\n", round, t,
					   seen.returned[t].load(), last[t]),
				   false;
	return true;
}

static void kill_at_random(int rounds)
{
	const char *given = std::getenv("SEED");
	const unsigned long seed = given != nullptr ? std::strtoul(given, nullptr, 10) : std::random_device()();
	std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
	const memory_ring ring("kill");
	drainer drain(ring.uri());
	auto *seen = static_cast<progress *>(
		mmap(nullptr, sizeof(progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	std::size_t count = 0;
	bool is_right = true;

	std::printf("cxx: spdlog: %d kills with seed=%lu (SEED=%lu rdma/test/run.sh cxx)\n", rounds, seed, seed);
	std::fflush(stdout);
	for (int round = 0; round < rounds && is_right; round++) {
		std::vector<event> events;
		new (seen) progress{};
		const pid_t child = fork();
		if (child == 0)
			log_until_killed(ring.uri(), round, seen);
		const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 30000);
		do {
			for (event &one : drain.take())
				events.push_back(std::move(one));
		} while (std::chrono::steady_clock::now() < until);
		kill(child, SIGKILL);
		waitpid(child, nullptr, 0);
		for (event &one : drain.take())
			events.push_back(std::move(one));
		is_right = is_whole(events, round, *seen);
		count += events.size();
	}
	check(is_right && count > static_cast<std::size_t>(rounds), "spdlog__killed_at_random");
	munmap(seen, sizeof(progress));
}

static void format_as_told()
{
	const memory_ring ring("format");
	drainer drain(ring.uri());
	spdlog_options options;
	options.classes[spdlog::level::critical] = 77;
	options.key = [](const spdlog::details::log_msg &event) {
		const std::string_view text(event.payload.data(), event.payload.size());
		return text.substr(0, text.find(' '));
	};
	auto sink = sink_on(ring, options);
	auto log = logger_on(sink);

	log->set_pattern("%l|%n|%v");
	log->trace("ORD-1 new");
	log->critical("ORD-2 rejected");
	sink->set_pattern("%v!");
	log->warn("ORD-3 次の注文 \xF0\x9F\x9C\x9A");
	log->info("");
	log->flush();
	const auto events = drain.take();
	check(events.size() == 4 && events[0].text == "trace|test|ORD-1 new" && events[0].key == "ORD-1" &&
			events[0].class_id == 1,
		"spdlog__pattern");
	check(events[1].text == "critical|test|ORD-2 rejected" && events[1].key == "ORD-2" && events[1].class_id == 77,
		"spdlog__class");
	check(events[2].text == "ORD-3 次の注文 \xF0\x9F\x9C\x9A!" && events[2].class_id == 4, "spdlog__wide_characters");
	check(events[3].text == "!" && events[3].key.empty(), "spdlog__empty");
}

#ifdef FARLOG_SPDLOG_HAS_MDC
static void take_key_from_mdc()
{
	const memory_ring ring("mdc");
	drainer drain(ring.uri());
	spdlog_options options;
	options.mdc_key = "ClOrdID";
	auto log = logger_on(sink_on(ring, options));

	log->info("without");
	spdlog::mdc::put("ClOrdID", "ORD-9");
	log->info("with");
	const auto events = drain.take();
	check(events.size() == 2 && events[0].key.empty() && events[1].key == "ORD-9", "spdlog__mdc_key");
}
#endif

static void log_large()
{
	const memory_ring ring("large", 16 << 20, 2 << 20);
	drainer drain(ring.uri());
	auto log = logger_on(sink_on(ring, with(spdlog_policy::raise())));
	std::string large(1 << 20, 'x');
	farlog::result refused = farlog::result::ok;

	log->set_error_handler([](const std::string &) {});
	large.front() = '<';
	large.back() = '>';
	log->info(large);
	try {
		log->info(large + large + large);
	} catch (const farlog::append_error &failure) {
		refused = failure.result;
	}
	log->info("after");
	const auto events = drain.take();
	check(events.size() == 2 && events[0].text == large && events[1].text == "after", "spdlog__one_mebibyte");
	check(refused == farlog::result::too_large, "spdlog__too_large_raises");
}

static void log_from_threads()
{
	const memory_ring ring("threads", 4 << 20);
	drainer drain(ring.uri());
	auto log = logger_on(sink_on(ring));
	std::vector<std::thread> threads;
	std::array<int, 10> last{};
	bool is_in_order = true;

	for (std::size_t t = 0; t < last.size(); t++)
		threads.emplace_back([&log, t] {
			for (int n = 1; n <= 500; n++)
				log->info("{} {}", t, n);
		});
	for (auto &thread : threads)
		thread.join();
	const auto events = drain.take();
	for (const event &one : events) {
		unsigned thread = 0;
		int number = 0;
		is_in_order =
			std::sscanf(one.text.c_str(), "%u %d", &thread, &number) == 2 && number == ++last[thread] && is_in_order;
	}
	check(events.size() == 5000 && is_in_order, "spdlog__ten_threads");
}

static void log_asynchronously()
{
	const memory_ring ring("async", 4 << 20);
	drainer drain(ring.uri());
	auto pool = std::make_shared<spdlog::details::thread_pool>(128, 1);
	auto log =
		std::make_shared<spdlog::async_logger>("async", sink_on(ring), pool, spdlog::async_overflow_policy::block);
	bool is_in_order = true;

	log->set_pattern("%v");
	for (int n = 0; n < 5000; n++)
		log->info("{}", n);
	log->flush();
	log.reset();
	pool.reset(); // its thread works off the queue and ends
	const auto events = drain.take();
	for (std::size_t n = 0; n < events.size(); n++)
		is_in_order = is_in_order && events[n].text == std::to_string(n);
	check(events.size() == 5000 && is_in_order, "spdlog__async");
}

static void fill(spdlog::logger &log, spdlog_sink_mt &sink)
{
	const std::string text(2000, 'f');

	while (sink.failed_total() == 0 && sink.dropped_total() == 0) {
		try {
			log.info(text);
		} catch (const farlog::append_error &) {
		}
	}
}

static void fail_when_full()
{
	const memory_ring ring("fail");
	drainer drain(ring.uri());
	int called = 0;
	std::string heard;
	auto options = with(spdlog_policy::fail());
	options.on_failure = [&called](farlog::result result, const farlog::position &) {
		called += result == farlog::result::full;
	};
	auto sink = sink_on(ring, options);
	auto log = logger_on(sink);

	log->set_error_handler([&heard](const std::string &text) { heard = text; });
	fill(*log, *sink);
	check(heard.find("FULL") != std::string::npos && called == 1, "spdlog__fail_is_heard");
	const std::size_t count = drain.take().size();
	log->info("room");
	const auto events = drain.take();
	check(count > 100 && events.size() == 1 && events[0].text == "room", "spdlog__fail_then_room");
}

static void raise_when_full()
{
	const memory_ring ring("raise");
	auto sink = sink_on(ring, with(spdlog_policy::raise()));
	auto log = logger_on(sink);
	farlog::result raised = farlog::result::ok;

	log->set_error_handler([](const std::string &) {});
	fill(*log, *sink);
	try {
		log->info(std::string(2000, 'f'));
	} catch (const farlog::append_error &failure) {
		raised = failure.result;
	}
	check(raised == farlog::result::full && sink->failed_total() == 2, "spdlog__raise_reaches_the_caller");
}

static void block_when_full()
{
	const memory_ring ring("block");
	auto sink = sink_on(ring, with(spdlog_policy::block(60ms)));
	auto log = logger_on(sink);

	log->set_error_handler([](const std::string &) {});
	const auto before = std::chrono::steady_clock::now();
	fill(*log, *sink);
	check(std::chrono::steady_clock::now() - before >= 60ms && sink->failed_total() == 1, "spdlog__block_waits");
}

// However late the drain comes, the call waits for it: the bound is beyond what any machine makes of the drain's delay.
static void block_until_room()
{
	const memory_ring ring("room");
	drainer drain(ring.uri());
	auto writer =
		std::make_shared<farlog::shared_writer>(farlog::shared_writer::open(ring.uri().c_str(), visible()).value());
	auto failing = std::make_shared<spdlog_sink_mt>(writer, with(spdlog_policy::fail()));
	auto blocking = std::make_shared<spdlog_sink_mt>(writer, with(spdlog_policy::block(10min)));
	auto filler = logger_on(failing);

	filler->set_error_handler([](const std::string &) {});
	fill(*filler, *failing);
	auto events = std::vector<event>();
	std::thread later([&drain, &events] {
		std::this_thread::sleep_for(10ms);
		events = drain.take();
	});
	logger_on(blocking)->info(std::string(2000, 'l'));
	later.join();
	for (event &rest : drain.take()) // what the first take met the writer in the middle of
		events.push_back(std::move(rest));
	check(!events.empty() && events.back().text.front() == 'l' && blocking->failed_total() == 0,
		"spdlog__block_until_room");
}

// The application's own writer rejects at once; the sink waits on its behalf.
static void block_on_a_rejecting_writer()
{
	const memory_ring ring("reject");
	auto options = visible();
	options.policy = farlog::policy::reject;
	auto writer =
		std::make_shared<farlog::shared_writer>(farlog::shared_writer::open(ring.uri().c_str(), options).value());
	auto sink = std::make_shared<spdlog_sink_mt>(writer, with(spdlog_policy::block(60ms)));
	auto log = logger_on(sink);

	log->set_error_handler([](const std::string &) {});
	const auto before = std::chrono::steady_clock::now();
	fill(*log, *sink);
	check(std::chrono::steady_clock::now() - before >= 60ms, "spdlog__block_on_a_rejecting_writer");
}

static void drop_when_full()
{
	const memory_ring ring("drop");
	drainer drain(ring.uri());
	auto sink = sink_on(ring, with(spdlog_policy::drop()));
	auto log = logger_on(sink);
	std::string heard;

	log->set_error_handler([&heard](const std::string &text) { heard = text; });
	fill(*log, *sink);
	for (int i = 0; i < 4; i++)
		log->info(std::string(2000, 'd'));
	check(heard.empty() && sink->dropped_count() == 5, "spdlog__drop_counts");
	drain.take();
	log->info("room");
	const auto events = drain.take();
	check(events.size() == 2 && events[0].class_id == 0xFFFF && events[0].text == "farlog.gap dropped=5" &&
			events[1].text == "room" && sink->dropped_count() == 0 && sink->dropped_total() == 5,
		"spdlog__gap_record");
	log->info(std::string(1 << 19, 'x')); // larger than any record of this ring
	log->flush();
	const auto gap = drain.take();
	check(gap.size() == 1 && gap[0].text == "farlog.gap dropped=1", "spdlog__flush_tells_the_gap");
}

// Every event of every thread is either there or counted by a gap record that stands between its neighbours.
static void drop_from_threads()
{
	const memory_ring ring("gaps", 256 << 10);
	drainer drain(ring.uri());
	auto sink = sink_on(ring, with(spdlog_policy::drop()));
	auto log = logger_on(sink);
	std::atomic<int> running{4};
	std::vector<std::thread> threads;
	std::vector<event> events;

	for (int t = 0; t < 4; t++)
		threads.emplace_back([&] {
			for (int n = 0; n < 5000; n++)
				log->info("event {:*<200}", n);
			running--;
		});
	while (running > 0) {
		for (event &one : drain.take())
			events.push_back(std::move(one));
		std::this_thread::sleep_for(1ms);
	}
	for (auto &thread : threads)
		thread.join();
	for (event &one : drain.take())
		events.push_back(std::move(one));
	log->flush();
	for (event &one : drain.take())
		events.push_back(std::move(one));
	unsigned long there = 0, dropped = 0;
	for (const event &one : events) {
		unsigned long count = 0;
		if (one.class_id != 0xFFFF)
			there++;
		else if (std::sscanf(one.text.c_str(), "farlog.gap dropped=%lu", &count) == 1)
			dropped += count;
	}
	check(there + dropped == 20000 && dropped == sink->dropped_total(), "spdlog__gaps_add_up");
}

static void refuse_recursion()
{
	const memory_ring ring("recursion");
	drainer drain(ring.uri());
	std::shared_ptr<spdlog::logger> log;
	std::string heard;
	spdlog_options options;
	options.key = [&log](const spdlog::details::log_msg &) {
		log->info("from within");
		return std::string_view("K");
	};

	log = logger_on(sink_on(ring, options));
	log->set_error_handler([&heard](const std::string &text) { heard = text; });
	log->info("outer");
	const auto events = drain.take();
	check(
		events.size() == 1 && events[0].text == "outer" && heard.find("logged into a farlog sink") != std::string::npos,
		"spdlog__recursion");
}

static void open_and_drop()
{
	const memory_ring ring("drop-logger");
	drainer drain(ring.uri());
	auto log = spdlog::create<spdlog_sink_mt>("dropped", ring.uri(), spdlog_options{}, visible());
	bool is_refused = false;

	log->info("last words");
	try {
		sink_on(ring);
	} catch (const spdlog::spdlog_ex &failure) {
		is_refused = std::strstr(failure.what(), ring.uri().c_str()) != nullptr;
	}
	check(is_refused, "spdlog__open_fails_at_start");
	spdlog::drop("dropped");
	log.reset();
	check(drain.take().size() == 1 && sink_on(ring) != nullptr, "spdlog__drop_gives_the_ring_back");
	auto writer =
		std::make_shared<farlog::shared_writer>(farlog::shared_writer::open(ring.uri().c_str(), visible()).value());
	auto late = logger_on(std::make_shared<spdlog_sink_mt>(writer, with(spdlog_policy::raise())));
	farlog::result result = farlog::result::ok;
	(void)writer->close();
	late->set_error_handler([](const std::string &) {});
	try {
		late->info("too late");
	} catch (const farlog::append_error &failure) {
		result = failure.result;
	}
	check(result == farlog::result::closed, "spdlog__closed_writer_raises");
}

static void allocate_nothing()
{
	const memory_ring ring("allocations", 4 << 20);
	auto log = logger_on(sink_on(ring));
	const std::string text(1000, 'a');

	log->info("{}", text);
	const long before = allocations;
	for (int i = 0; i < 1000; i++)
		log->info("order {} of desk {}", i, "seven");
	check(allocations == before, "spdlog__allocates_nothing");
}

int main(int argc, char **argv)
{
	kill_at_random(argc > 1 ? std::atoi(argv[1]) : 150); // first: a process with threads does not fork well
	format_as_told();
#ifdef FARLOG_SPDLOG_HAS_MDC
	take_key_from_mdc();
#endif
	log_large();
	log_from_threads();
	log_asynchronously();
	fail_when_full();
	raise_when_full();
	block_when_full();
	block_until_room();
	block_on_a_rejecting_writer();
	drop_when_full();
	drop_from_threads();
	refuse_recursion();
	open_and_drop();
	allocate_nothing();
	std::printf("cxx: %d passed, %d failed\n", passed, failed);
	return failed != 0;
}
