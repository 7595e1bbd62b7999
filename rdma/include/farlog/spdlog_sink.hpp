/* spdlog_sink.hpp -- a spdlog sink that appends each event to a ring. Header-only; spdlog 1.10 or later, C++17.
 *
 *     auto log = spdlog::create<farlog::spdlog_sink_mt>("orders", "mem:/dev/shm/orders.ring",
 *     farlog::spdlog_options{});
 *     log->info("new order {}", id);   // at the writer's level when it returns
 *
 * Durability  When log() of a synchronous logger returns and the policy did not speak, the event is in the ring at the
 *             writer's level (persistent unless asked otherwise). With spdlog::async_factory the logging call returns
 *             once the event is queued in this process: what is queued dies with it, and queue overflow follows
 *             spdlog's own policy.
 * Order       Events of one thread are in the ring in its order. Threads format one at a time and append side by side.
 * Failures    spdlog catches what derives from std::exception and gives it to the logger's error handler, which prints
 *             to stderr once a second unless the application set its own. So `fail` is heard by set_error_handler() and
 *             by nobody else. What must reach the caller of info() is `raise`: it throws farlog::append_error, which
 *             derives from nothing, and spdlog lets that through (in an async logger it ends spdlog's thread, and with
 *             it the process). on_failure is called before either, on the thread that logged.
 * Blocking    fail, raise, drop: not for space; for the flush until the writer's deadline. block(T): T for both. An
 *             append whose outcome is then unknown is asked after once (resolve), for as long again.
 * Threads     spdlog_sink_mt: any. spdlog_sink_st: one at a time. The sink never logs: a formatter or callback that
 *             logs into a farlog sink while one is at work on its thread gets a spdlog_ex.
 * Memory      No allocation once there are as many buffers as threads that ever logged at the same time. Buffers over
 *             64 KiB are not kept. */
#ifndef FARLOG_SPDLOG_SINK_HPP
#define FARLOG_SPDLOG_SINK_HPP

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <spdlog/common.h>
#include <spdlog/details/log_msg.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/formatter.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/version.h>
#if __has_include(<spdlog/mdc.h>) && !defined(SPDLOG_NO_TLS)
#include <spdlog/mdc.h>
#define FARLOG_SPDLOG_HAS_MDC 1
#endif

#include "farlog/farlog.hpp"

namespace farlog {
inline namespace FARLOG_HPP_SPAN {

/* append_error -- what the policy `raise` throws. It derives from nothing, so that spdlog does not swallow it. */
struct append_error {
	farlog::result result;
	farlog::position position;
};

/* spdlog_policy -- what an event that did not reach its level does. A ring that is full, for one: */
class spdlog_policy {
public:
	enum class action { fail, raise, drop };

	/* fail -- spdlog_ex, to the logger's error handler. */
	static constexpr spdlog_policy fail() noexcept { return {action::fail, nanoseconds(0)}; }
	/* raise -- append_error, to the caller of the logging call. */
	static constexpr spdlog_policy raise() noexcept { return {action::raise, nanoseconds(0)}; }
	/* block -- wait for the drain for this long, then as `then`. */
	static constexpr spdlog_policy block(nanoseconds patience, action then = action::fail) noexcept
	{
		return {then, patience};
	}
	/* drop -- leave the event out and count it. Before the next event that fits stands a record of
	 * spdlog_options::gap_class with the text "farlog.gap dropped=N". Of events that are full or too_large only; others
	 * (fenced, closed, unknown) fail. */
	static constexpr spdlog_policy drop() noexcept { return {action::drop, nanoseconds(0)}; }

	constexpr action then() const noexcept { return then_; }
	constexpr nanoseconds patience() const noexcept { return patience_; }

private:
	constexpr spdlog_policy(action then, nanoseconds patience) noexcept : then_(then), patience_(patience) {}
	action then_;
	nanoseconds patience_;
};

struct spdlog_options {
	spdlog_policy policy = spdlog_policy::fail();
	/* Class of the record by level: trace, debug, info, warn, error, critical, off. */
	std::array<std::uint16_t, spdlog::level::n_levels> classes{{1, 2, 3, 4, 5, 6, 0}};
	std::uint16_t gap_class = 0xFFFF;
	/* The line end that spdlog's formatters put behind each event; a record has an end of its own. */
	bool is_eol_kept = false;
	/* Key of an event, e.g. its ClOrdID; the view must live until the next call on this thread. On an async logger's
	 * thread if there is one. Empty = no key. */
	std::function<std::string_view(const spdlog::details::log_msg &)> key;
#ifdef FARLOG_SPDLOG_HAS_MDC
	/* Name of the value in spdlog::mdc that is the key, when `key` is not set. The MDC belongs to a thread: not with
	 * async loggers. */
	std::string mdc_key;
#endif
	/* Called before the policy acts, on the thread that logged. It may end the process or throw; it must not log
	 * here. */
	std::function<void(farlog::result, const farlog::position &)> on_failure;
};

namespace detail {
/* A flag of the thread: trivially destroyed, so that logging from destructors at a thread's end finds it. */
inline bool &is_in_sink() noexcept
{
	static thread_local bool is_in = false;

	return is_in;
}

class sink_turn {
public:
	sink_turn()
	{
		if (is_in_sink())
			spdlog::throw_spdlog_ex(
				"farlog: a formatter or callback of a farlog sink logged into a farlog sink; expected it not to");
		is_in_sink() = true;
	}
	~sink_turn() { is_in_sink() = false; }
	sink_turn(const sink_turn &) = delete;
	sink_turn &operator=(const sink_turn &) = delete;
};
} // namespace detail

/* spdlog_sink -- Mutex guards the formatter and the buffers; std::mutex or spdlog::details::null_mutex. */
template <class Mutex> class spdlog_sink final : public spdlog::sinks::sink {
public:
	/* On a writer that the application opened, and may go on using. Room is waited for as the policy says if it
	 * rejects, else at least for its deadline. */
	explicit spdlog_sink(std::shared_ptr<shared_writer> writer, spdlog_options options = {})
		: writer_(std::move(writer)),
		  options_(std::move(options)),
		  formatter_(std::make_unique<spdlog::pattern_formatter>())
	{
		if (writer_ == nullptr || !*writer_)
			spdlog::throw_spdlog_ex("farlog: sink without an open writer");
	}
	/* On a writer of its own. A ring that cannot be opened throws spdlog_ex here, not at the first event. */
	explicit spdlog_sink(const std::string &uri, spdlog_options options = {}, writer_options writing = {})
		: spdlog_sink(opened(uri, options, writing), std::move(options))
	{
	}
	~spdlog_sink() override { (void)report_gap(); }
	spdlog_sink(const spdlog_sink &) = delete;
	spdlog_sink &operator=(const spdlog_sink &) = delete;

	void log(const spdlog::details::log_msg &event) override
	{
		const detail::sink_turn turn;
		const borrowed text(*this, event);
		const std::string_view bytes_of_event = trimmed(text.view());
		const std::string_view key = key_of(event);
		const std::uint16_t class_id = options_.classes[static_cast<std::size_t>(event.level)];
		outcome made = gap_then_append(bytes_of_event, key, class_id);

		if (!made)
			refuse(made);
	}
	/* flush -- nothing waits here: an event is at the writer's level when log() returns. What is left to do is to
	 * report a gap, and spdlog_ex says when that was not possible. On an async logger this runs once the events before
	 * it are through. */
	void flush() override
	{
		const detail::sink_turn turn;
		const outcome made = report_gap();

		if (!made)
			spdlog::throw_spdlog_ex("farlog: " + std::to_string(dropped_count()) +
				" events dropped, and no gap record: " + message(made.result));
	}
	void set_pattern(const std::string &pattern) override
	{
		set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern));
	}
	void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override
	{
		const std::lock_guard<Mutex> lock(mutex_);

		formatter_ = std::move(formatter);
	}
	/* dropped_count -- events left out and not yet in a gap record. dropped_total -- all that were left out. */
	std::uint64_t dropped_count() const noexcept { return dropped_.load(std::memory_order_acquire); }
	std::uint64_t dropped_total() const noexcept { return dropped_total_.load(std::memory_order_relaxed); }
	/* failed_total -- events that the policies fail and raise spoke of. */
	std::uint64_t failed_total() const noexcept { return failed_total_.load(std::memory_order_relaxed); }
	shared_writer &writer() noexcept { return *writer_; }

private:
	static constexpr std::size_t buffer_len_max = 64 << 10;
	using clock = std::chrono::steady_clock;

	/* borrowed -- one of the sink's buffers with the formatted event in it. */
	class borrowed {
	public:
		borrowed(spdlog_sink &sink, const spdlog::details::log_msg &event) : sink_(sink)
		{
			const std::lock_guard<Mutex> lock(sink.mutex_);

			if (!sink.buffers_.empty()) {
				text_ = std::move(sink.buffers_.back());
				sink.buffers_.pop_back();
			} else {
				text_ = std::make_unique<spdlog::memory_buf_t>();
				sink.buffers_.reserve(++sink.buffer_count_); /* so that giving it back cannot fail */
			}
			text_->clear();
			sink.formatter_->format(event, *text_);
		}
		~borrowed()
		{
			if (text_->capacity() > buffer_len_max)
				*text_ = spdlog::memory_buf_t();
			const std::lock_guard<Mutex> lock(sink_.mutex_);
			sink_.buffers_.push_back(std::move(text_));
		}
		borrowed(const borrowed &) = delete;
		borrowed &operator=(const borrowed &) = delete;
		std::string_view view() const noexcept { return {text_->data(), text_->size()}; }

	private:
		spdlog_sink &sink_;
		std::unique_ptr<spdlog::memory_buf_t> text_;
	};

	static std::shared_ptr<shared_writer> opened(
		const std::string &uri, const spdlog_options &options, writer_options writing)
	{
		if (options.policy.patience().count() > 0)
			writing.deadline = options.policy.patience();
		else
			writing.policy = farlog::policy::reject;
		auto writer = shared_writer::open(uri.c_str(), writing);
		if (!writer)
			spdlog::throw_spdlog_ex(std::string(writer.error().what()));
		return std::make_shared<shared_writer>(*std::move(writer));
	}
	static std::string message(farlog::result result) { return std::string(name(result)) + ": " + text(result); }

	std::string_view trimmed(std::string_view text) const noexcept
	{
		const std::string_view eol = spdlog::details::os::default_eol;

		if (!options_.is_eol_kept && text.size() >= eol.size() && text.substr(text.size() - eol.size()) == eol)
			text.remove_suffix(eol.size());
		return text;
	}
	std::string_view key_of(const spdlog::details::log_msg &event) const
	{
		if (options_.key)
			return options_.key(event);
#ifdef FARLOG_SPDLOG_HAS_MDC
		if (!options_.mdc_key.empty()) {
			const auto &context = spdlog::mdc::get_context();
			const auto found = context.find(options_.mdc_key);
			if (found != context.end())
				return found->second;
		}
#endif
		(void)event;
		return {};
	}
	/* A gap record comes before anything after the gap; where it cannot be written, nothing is. */
	outcome gap_then_append(std::string_view text, std::string_view key, std::uint16_t class_id) noexcept
	{
		if (dropped_.load(std::memory_order_acquire) != 0) {
			const outcome told =
				has_room_for(text.size() + key.size()) ? report_gap() : outcome{farlog::result::full, {}};
			if (!told)
				return told;
		}
		return append(text, key, class_id);
	}
	/* Without this the gap record would take the last space, before an event that does not fit: a gap record for each
	 * event. */
	bool has_room_for(std::size_t len) const noexcept
	{
		const farlog::cursors seen = writer_->cursors();

		return options_.policy.patience().count() > 0 || seen.capacity_bytes == 0 /* closed */ ||
			seen.capacity_bytes - (seen.appended_lsn - seen.head_lsn) >= len + 4 * 64;
	}
	/* append -- a full ring is tried again until the policy's patience is at its end; a writer that blocks waits by
	 * itself. */
	outcome append(std::string_view text, std::string_view key, std::uint16_t class_id) noexcept
	{
		const nanoseconds patience = options_.policy.patience();
		outcome made = writer_->append(text, key, class_id, patience);

		if (made.result == farlog::result::full && patience.count() > 0) {
			const auto until = clock::now() + patience;
			for (auto left = patience; made.result == farlog::result::full && left.count() > 0;
				left = until - clock::now()) {
				std::this_thread::sleep_for(std::chrono::microseconds(50));
				made = writer_->append(text, key, class_id, left);
			}
		}
		if (made.result == farlog::result::unknown && writer_->resolve(made.position.lsn, patience))
			made.result = farlog::result::ok;
		return made;
	}
	outcome report_gap() noexcept
	{
		const std::lock_guard<Mutex> lock(
			gap_mutex_); /* later events of this thread wait here until the gap record is written */
		const std::uint64_t count = dropped_.load(std::memory_order_relaxed);
		constexpr std::string_view head = "farlog.gap dropped=";
		std::array<char, 48> text{};
		outcome told;

		told.result = farlog::result::ok;
		if (count == 0)
			return told;
		std::copy(head.begin(), head.end(), text.begin());
		const auto end = std::to_chars(text.data() + head.size(), text.data() + text.size(), count);
		told = append({text.data(), static_cast<std::size_t>(end.ptr - text.data())}, {}, options_.gap_class);
		if (told)
			dropped_.fetch_sub(count, std::memory_order_release);
		return told;
	}
	void refuse(const outcome &made)
	{
		const bool is_dropped = options_.policy.then() == spdlog_policy::action::drop &&
			(made.result == farlog::result::full || made.result == farlog::result::too_large);

		if (is_dropped) {
			dropped_total_.fetch_add(1, std::memory_order_relaxed);
			dropped_.fetch_add(1, std::memory_order_release);
		} else {
			failed_total_.fetch_add(1, std::memory_order_relaxed);
		}
		if (options_.on_failure)
			options_.on_failure(made.result, made.position);
		if (is_dropped)
			return;
#ifndef SPDLOG_NO_EXCEPTIONS
		if (options_.policy.then() == spdlog_policy::action::raise)
			throw append_error{made.result, made.position};
#endif
		/* without exceptions spdlog ends the process here */
		spdlog::throw_spdlog_ex("farlog: " + message(made.result));
	}

	std::shared_ptr<shared_writer> writer_;
	const spdlog_options options_;
	Mutex mutex_; /* guards the three below */
	std::unique_ptr<spdlog::formatter> formatter_;
	std::vector<std::unique_ptr<spdlog::memory_buf_t>> buffers_;
	std::size_t buffer_count_ = 0;
	Mutex gap_mutex_;
	std::atomic<std::uint64_t> dropped_{0};
	std::atomic<std::uint64_t> dropped_total_{0};
	std::atomic<std::uint64_t> failed_total_{0};
};

using spdlog_sink_mt = spdlog_sink<std::mutex>;
using spdlog_sink_st = spdlog_sink<spdlog::details::null_mutex>;

} // inline namespace
} // namespace farlog

#endif
