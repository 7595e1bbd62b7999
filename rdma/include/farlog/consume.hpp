/* consume.hpp -- C++17 on top of consume.h: a named live reader of a stream, its history in a store joined to its ring.
 * The conventions of farlog.hpp hold. */
#ifndef FARLOG_CONSUME_HPP
#define FARLOG_CONSUME_HPP

#include "farlog/consume.h"
#include "farlog/types.hpp"

namespace farlog {
inline namespace FARLOG_HPP_SPAN {

using place = farlog_place;
using notice = farlog_notice;
using consumer_config = farlog_consumer_config;
using consumer_stats = farlog_consumer_stats;

/* consumed -- one record, with views that are good until the consumer's next call; or, with result::overrun, its
 * `notice`. */
struct consumed : farlog_consumed {
	consumed() noexcept : farlog_consumed{} {}
	bytes key_bytes() const noexcept { return {key, key_len}; }
	bytes payload_bytes() const noexcept { return {payload, payload_len}; }
	bool is_control() const noexcept { return flags != 0; }
};

/* consumer -- one thread at a time. */
class consumer {
public:
	consumer() noexcept = default;
	/* open -- nothing of the configuration is kept. Errors: invalid, held (a living consumer has this name), not_found,
	 * corrupt, io, and as reader::open. */
	static expected<consumer> open(const consumer_config &config) noexcept
	{
		return detail::opened<consumer, farlog_consumer>([&](farlog_consumer **handle, farlog_error *failure) {
			return farlog_consumer_open(&config, handle, failure);
		});
	}
	explicit operator bool() const noexcept { return handle_ != nullptr; }
	farlog_consumer *get() const noexcept { return handle_.get(); }

	/* next -- the next record that is wanted; waits so long for one, not at all without `wait`. ok, not_yet; overrun:
	 * into.notice says what happened, go on; not_found, corrupt, io, held: as farlog_consumer_next, and trouble says
	 * why. */
	farlog::result next(consumed &into, nanoseconds wait = nanoseconds{0}) noexcept
	{
		const auto deadline = wait.count() > 0 ? static_cast<std::uint64_t>(wait.count()) : 0;

		return handle_ ? static_cast<farlog::result>(farlog_consumer_next(get(), deadline, &into)) :
						 farlog::result::closed;
	}
	/* commit -- keep the position behind the last record given, durably, under the name. Blocks for the file system.
	 * ok, io. */
	farlog::result commit() noexcept
	{
		return handle_ ? static_cast<farlog::result>(farlog_consumer_commit(get())) : farlog::result::closed;
	}
	consumer_stats stats() noexcept
	{
		consumer_stats stats{};

		if (handle_)
			farlog_consumer_stats_read(get(), &stats);
		return stats;
	}
	/* trouble -- one line on why the last call failed; good until the next one. */
	std::string_view trouble() const noexcept
	{
		return handle_ ? std::string_view(farlog_consumer_trouble(get())) : std::string_view();
	}
	void close() noexcept { handle_.reset(); }

private:
	template <class Wrapped, class Handle, class Call> friend expected<Wrapped> detail::opened(Call) noexcept;
	explicit consumer(farlog_consumer *handle) noexcept : handle_(handle) {}
	static int close_handle(farlog_consumer *handle) noexcept
	{
		farlog_consumer_close(handle);
		return FARLOG_OK;
	}
	detail::owner<farlog_consumer, close_handle> handle_;
};

} // inline namespace
} // namespace farlog

#endif
