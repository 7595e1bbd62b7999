/* farlog.hpp -- C++17 on top of farlog.h: handles that close themselves, spans, results without exceptions; nothing to
 * link but libfarlog.
 *
 * Conventions
 *   Results   Cold calls (open, format, inspect) give an `expected`: the value, or an `error` with its one line of
 *             text. Hot calls give a `result` or an `outcome` (result and position). Nothing here throws; all of it
 *             compiles with -fno-exceptions.
 *   Units     Durations are std::chrono, a deadline counts from the call, 0 is the writer's default and a negative one
 *             has passed. _lsn are byte positions that never wrap, _bytes and _len bytes, _count things.
 *   Threads   writer, claim, reader: one thread at a time. shared_writer: append, resolve and cursors from any thread;
 *             nobody may enter a call once close, a move or the destructor has begun (calls under way are waited for).
 *   Blocking  Stated at each function. No hot call waits beyond its deadline.
 *   Memory    Hot calls allocate nothing, lock nothing of ours and keep no pointer beyond their return. Only opening
 *             allocates.
 *   Durability  result::ok from append, wait or commit means: the record is at the writer's level, which
 *               outcome.position.level names.
 *             docs/explanation/durability.md says what a level survives on which region.
 *
 * A closed, moved-from or default-made handle answers result::closed, and opening what it was is no error of the
 * language. */
#ifndef FARLOG_FARLOG_HPP
#define FARLOG_FARLOG_HPP

#include "farlog/reader.hpp"
#include "farlog/types.hpp"

namespace farlog {
inline namespace FARLOG_HPP_SPAN {

class writer;

/* claim -- space for a payload, to be filled in place: nothing is copied and nothing is reserved in the ring before
 * commit. Dropping it gives it up. It ends with the next append, submit, batch or claim of its writer (commit is then
 * invalid), and the writer must be neither moved nor closed before that. */
class claim {
public:
	claim() noexcept = default;
	claim(claim &&other) noexcept { *this = std::move(other); }
	claim &operator=(claim &&other) noexcept
	{
		writer_ = std::exchange(other.writer_, nullptr);
		turn_ = other.turn_;
		payload_ = other.payload_;
		refused_ = other.refused_;
		return *this;
	}
	/* False: the writer refused it, refused() says why: too_large, fenced, invalid, closed. */
	explicit operator bool() const noexcept { return writer_ != nullptr; }
	farlog::result refused() const noexcept { return refused_; }
	span<std::byte> payload() const noexcept { return payload_; }
	/* commit -- append it and wait until it is at the writer's level. full leaves the claim standing, to be committed
	 * again; everything else ends it. Blocks until the deadline. */
	inline outcome commit(nanoseconds deadline = default_deadline) noexcept;

private:
	friend class writer;
	farlog::writer *writer_ = nullptr;
	std::uint64_t turn_ = 0;
	span<std::byte> payload_;
	farlog::result refused_ = farlog::result::closed;
};

/* writer -- a ring's one writer, used by one thread at a time. The destructor closes it: blocks up to the default
 * deadline. */
class writer {
public:
	writer() noexcept = default;
	/* open -- take the ring's lock, recover, begin an epoch. Blocks for a scan of what is undrained. Errors: not_found,
	 * not_a_ring, held, level, fenced, corrupt, full, io. */
	static expected<writer> open(const char *uri, const writer_options &options = {}) noexcept
	{
		const farlog_writer_config config = detail::config(options);

		return detail::opened<writer, farlog_writer>([&](farlog_writer **handle, farlog_error *failure) {
			return farlog_writer_open(uri, &config, handle, failure);
		});
	}
	explicit operator bool() const noexcept { return handle_ != nullptr; }
	farlog_writer *get() const noexcept { return handle_.get(); }

	/* append -- one record, and wait until it is at the writer's level. Blocks until the deadline. */
	outcome append(
		bytes data, bytes key = {}, std::uint16_t class_id = 0, nanoseconds deadline = default_deadline) noexcept
	{
		return put(data, key, class_id, [&](const farlog_entry &given, farlog_position &placed) {
			return farlog_append(get(), &given, detail::deadline_ns(deadline), &placed);
		});
	}
	/* try_append -- append that is full at once, whatever the policy. It still waits for the flush, until the default
	 * deadline. */
	outcome try_append(bytes data, bytes key = {}, std::uint16_t class_id = 0) noexcept
	{
		return put(data, key, class_id, [&](const farlog_entry &given, farlog_position &placed) {
			return farlog_try_append(get(), &given, &placed);
		});
	}
	/* submit -- write one record; it becomes durable by poll, wait or the next append. Never blocks. */
	outcome submit(bytes data, bytes key = {}, std::uint16_t class_id = 0) noexcept
	{
		return put(data, key, class_id,
			[&](const farlog_entry &given, farlog_position &placed) { return farlog_submit(get(), &given, &placed); });
	}
	/* poll -- start a flush when none is under way; every record with end_lsn <= durable_lsn is acknowledged. Never
	 * blocks. */
	farlog::result poll(std::uint64_t &durable_lsn) noexcept
	{
		return handle_ ? static_cast<farlog::result>(farlog_poll(get(), &durable_lsn)) : farlog::result::closed;
	}
	/* wait -- until the durable position reaches end_lsn. unknown at the deadline, or when the region failed. */
	farlog::result wait(std::uint64_t end_lsn, nanoseconds deadline = default_deadline) noexcept
	{
		return handle_ ? static_cast<farlog::result>(farlog_wait(get(), end_lsn, detail::deadline_ns(deadline))) :
						 farlog::result::closed;
	}
	/* append_batch -- submit all, wait once: one group commit. positions is as long as entries. Blocks until
	 * the deadline. */
	batch_outcome append_batch(
		span<const entry> entries, span<farlog::position> positions, nanoseconds deadline = default_deadline) noexcept
	{
		batch_outcome made;

		if (!handle_)
			return made;
		made.result = farlog::result::invalid;
		if (positions.size() < entries.size())
			return made;
		turn_++;
		made.result = static_cast<farlog::result>(farlog_append_batch(get(), entries.data(), entries.size(),
			detail::deadline_ns(deadline), positions.data(), &made.done, &made.submitted));
		return made;
	}
	/* claim -- space for `len` bytes of payload. The key is copied. Never blocks. */
	farlog::claim claim(std::uint32_t len, bytes key = {}, std::uint16_t class_id = 0) noexcept
	{
		farlog::claim made;
		void *payload = nullptr;

		if (!handle_)
			return made;
		turn_++;
		made.refused_ = key.size() > UINT16_MAX ? farlog::result::too_large :
												  static_cast<farlog::result>(farlog_claim(get(), len, class_id,
													  key.data(), std::uint16_t(key.size()), &payload));
		if (made.refused_ != farlog::result::ok)
			return made;
		made.writer_ = this;
		made.turn_ = turn_;
		made.payload_ = span<std::byte>(static_cast<std::byte *>(payload), len);
		return made;
	}
	/* resolve -- after unknown: is the record at lsn durable? ok, not_found (it is not and never will be), unknown. */
	outcome resolve(std::uint64_t lsn, nanoseconds deadline = default_deadline) noexcept
	{
		outcome made;

		if (handle_)
			made.result =
				static_cast<farlog::result>(farlog_resolve(get(), lsn, detail::deadline_ns(deadline), &made.position));
		return made;
	}
	/* heartbeat -- a record without payload, so that merges past an idle writer can move on. Blocks until the
	 * deadline. */
	outcome heartbeat(nanoseconds deadline = default_deadline) noexcept
	{
		outcome made;

		turn_++;
		if (handle_)
			made.result =
				static_cast<farlog::result>(farlog_heartbeat(get(), detail::deadline_ns(deadline), &made.position));
		return made;
	}
	farlog::cursors cursors() noexcept
	{
		farlog::cursors seen{};

		if (handle_)
			farlog_writer_cursors(get(), &seen);
		return seen;
	}
	/* Of an open writer only. */
	const farlog::recovery &recovery() const noexcept
	{
		assert(handle_);
		return *farlog_writer_recovery(get());
	}
	const farlog::contract &contract() const noexcept
	{
		assert(handle_);
		return *farlog_writer_contract(get());
	}
	/* close -- as the destructor does, with the last flush's result. Twice is closed. */
	farlog::result close() noexcept
	{
		return handle_ ? static_cast<farlog::result>(farlog_writer_close(handle_.release())) : farlog::result::closed;
	}

private:
	friend class farlog::claim;
	template <class Wrapped, class Handle, class Call> friend expected<Wrapped> detail::opened(Call) noexcept;
	explicit writer(farlog_writer *handle) noexcept : handle_(handle) {}
	template <class Call> outcome put(bytes data, bytes key, std::uint16_t class_id, Call call) noexcept
	{
		const entry given(data, key, class_id);
		outcome made;

		turn_++;
		if (handle_)
			made.result = static_cast<farlog::result>(call(given, made.position));
		return made;
	}
	detail::owner<farlog_writer, farlog_writer_close> handle_;
	std::uint64_t turn_ = 0; /* a claim of an earlier turn has ended: its bytes may be another record's by now */
};

inline outcome claim::commit(nanoseconds deadline) noexcept
{
	outcome made;

	made.result = farlog::result::invalid;
	if (writer_ == nullptr || writer_->turn_ != turn_ || !*writer_)
		return made;
	made.result =
		static_cast<farlog::result>(farlog_commit(writer_->get(), detail::deadline_ns(deadline), &made.position));
	if (made.result != farlog::result::full)
		writer_ = nullptr;
	return made;
}

/* shared_writer -- one writer for up to 64 threads at a time, which share flushes. A thread's records are in the log in
 * its order. */
class shared_writer {
public:
	shared_writer() noexcept = default;
	/* open -- as writer::open. */
	static expected<shared_writer> open(const char *uri, const writer_options &options = {}) noexcept
	{
		const farlog_writer_config config = detail::config(options);

		return detail::opened<shared_writer, farlog_shared>([&](farlog_shared **handle, farlog_error *failure) {
			return farlog_shared_open(uri, &config, handle, failure);
		});
	}
	explicit operator bool() const noexcept { return handle_ != nullptr; }
	farlog_shared *get() const noexcept { return handle_.get(); }

	/* append -- from any thread; otherwise as writer::append. */
	outcome append(
		bytes data, bytes key = {}, std::uint16_t class_id = 0, nanoseconds deadline = default_deadline) noexcept
	{
		const entry given(data, key, class_id);
		outcome made;

		if (handle_)
			made.result = static_cast<farlog::result>(
				farlog_shared_append(get(), &given, detail::deadline_ns(deadline), &made.position));
		return made;
	}
	outcome resolve(std::uint64_t lsn, nanoseconds deadline = default_deadline) noexcept
	{
		outcome made;

		if (handle_)
			made.result = static_cast<farlog::result>(
				farlog_shared_resolve(get(), lsn, detail::deadline_ns(deadline), &made.position));
		return made;
	}
	farlog::cursors cursors() noexcept
	{
		farlog::cursors seen{};

		if (handle_)
			farlog_shared_cursors(get(), &seen);
		return seen;
	}
	/* Of an open writer only. */
	const farlog::recovery &recovery() const noexcept
	{
		assert(handle_);
		return *farlog_shared_recovery(get());
	}
	const farlog::contract &contract() const noexcept
	{
		assert(handle_);
		return *farlog_shared_contract(get());
	}
	/* close -- wait for the appends under way, flush. Twice is closed. */
	farlog::result close() noexcept
	{
		return handle_ ? static_cast<farlog::result>(farlog_shared_close(handle_.release())) : farlog::result::closed;
	}

private:
	template <class Wrapped, class Handle, class Call> friend expected<Wrapped> detail::opened(Call) noexcept;
	explicit shared_writer(farlog_shared *handle) noexcept : handle_(handle) {}
	detail::owner<farlog_shared, farlog_shared_close> handle_;
};

} // inline namespace
} // namespace farlog

#endif
