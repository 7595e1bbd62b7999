/* farlog.hpp -- C++17 on top of farlog.h: handles that close themselves, no exceptions, nothing to link but libfarlog.
 *
 * Cold calls (open) return an `expected`: a handle, or the error with its one line of text. Hot calls return an `outcome`: the result
 * code and, when it is OK or UNKNOWN, the position. Threads, blocking and durability are those of the C functions of the same name.
 */
#ifndef FARLOG_FARLOG_HPP
#define FARLOG_FARLOG_HPP

#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "farlog/farlog.h"

namespace farlog {

/* bytes -- a view of somebody's memory: anything contiguous with data() and size(), or pointer and length. */
class bytes {
public:
	constexpr bytes() noexcept = default;
	constexpr bytes(const void *data, std::size_t size) noexcept : data_(data), size_(size) {}
	template <class Container, class Element = std::remove_pointer_t<decltype(std::declval<const Container &>().data())>,
		class = std::enable_if_t<std::is_trivially_copyable_v<Element>>>
	constexpr bytes(const Container &container) noexcept
		: data_(container.data()), size_(container.size() * sizeof(Element)) {}
	constexpr bytes(const char *text) noexcept : bytes(std::string_view(text)) {}

	constexpr const void *data() const noexcept { return data_; }
	constexpr std::size_t size() const noexcept { return size_; }

private:
	const void *data_ = nullptr;
	std::size_t size_ = 0;
};

/* error -- what a cold call has to say. */
struct error : farlog_error {
	error() noexcept : farlog_error{} {}
	std::string_view what() const noexcept { return text; }
};

/* expected -- a value, or an error when it is false. */
template <class T> class expected {
public:
	expected(T &&value) noexcept : value_(std::move(value)) {}
	expected(const error &failure) noexcept : error_(failure) {}

	explicit operator bool() const noexcept { return static_cast<bool>(value_); }
	T &operator*() noexcept { assert(value_); return value_; }
	T *operator->() noexcept { assert(value_); return &value_; }
	const farlog::error &error() const noexcept { return error_; }

private:
	T value_;
	farlog::error error_;
};

/* outcome -- of one append. */
struct outcome {
	int result;
	farlog_position position;

	explicit operator bool() const noexcept { return result == FARLOG_OK; }
	const char *name() const noexcept { return farlog_result_name(result); }
};

using nanoseconds = std::chrono::nanoseconds;

namespace detail {
template <class Handle, auto Close> struct closer {
	void operator()(Handle *handle) const noexcept { Close(handle); }
};
template <class Handle, auto Close> using owner = std::unique_ptr<Handle, closer<Handle, Close>>;

/* Negative durations are over already; 0 would mean the default. */
inline std::uint64_t deadline_ns(nanoseconds deadline) noexcept
{
	return deadline.count() < 0 ? 1 : static_cast<std::uint64_t>(deadline.count());
}

/* A length that does not fit is refused by the core: it is larger than any record. */
inline farlog_entry entry(bytes data, bytes key, std::uint16_t class_id, bool &fits) noexcept
{
	fits = data.size() <= UINT32_MAX && key.size() <= UINT16_MAX;
	return farlog_entry{data.data(), static_cast<std::uint32_t>(data.size()), class_id,
		static_cast<std::uint16_t>(key.size()), key.data()};
}
} // namespace detail

/* writer -- a ring's one writer; used by one thread at a time. */
class writer {
public:
	writer() noexcept = default;
	static expected<writer> open(const char *uri, const farlog_writer_config &config = {}) noexcept
	{
		farlog_writer *handle = nullptr;
		farlog::error failure;

		if (farlog_writer_open(uri, &config, &handle, &failure) != FARLOG_OK)
			return failure;
		return writer(handle);
	}
	explicit operator bool() const noexcept { return handle_ != nullptr; }
	farlog_writer *get() const noexcept { return handle_.get(); }

	outcome append(bytes data, bytes key = {}, std::uint16_t class_id = 0, nanoseconds deadline = nanoseconds(0)) noexcept
	{
		return put(data, key, class_id, [&](const farlog_entry &entry, farlog_position &position) {
			return farlog_append(get(), &entry, detail::deadline_ns(deadline), &position);
		});
	}
	outcome try_append(bytes data, bytes key = {}, std::uint16_t class_id = 0) noexcept
	{
		return put(data, key, class_id, [&](const farlog_entry &entry, farlog_position &position) {
			return farlog_try_append(get(), &entry, &position);
		});
	}
	outcome submit(bytes data, bytes key = {}, std::uint16_t class_id = 0) noexcept
	{
		return put(data, key, class_id, [&](const farlog_entry &entry, farlog_position &position) {
			return farlog_submit(get(), &entry, &position);
		});
	}
	int poll(std::uint64_t &durable_lsn) noexcept { return farlog_poll(get(), &durable_lsn); }
	int wait(std::uint64_t end_lsn, nanoseconds deadline = nanoseconds(0)) noexcept
	{
		return farlog_wait(get(), end_lsn, detail::deadline_ns(deadline));
	}
	outcome resolve(std::uint64_t lsn, nanoseconds deadline = nanoseconds(0)) noexcept
	{
		outcome made{};

		made.result = farlog_resolve(get(), lsn, detail::deadline_ns(deadline), &made.position);
		return made;
	}
	farlog_cursors cursors() noexcept
	{
		farlog_cursors seen{};

		farlog_writer_cursors(get(), &seen);
		return seen;
	}
	const farlog_recovery &recovery() const noexcept { return *farlog_writer_recovery(get()); }
	const farlog_contract &contract() const noexcept { return *farlog_writer_contract(get()); }
	/* close -- as the destructor does, with the last flush's result. */
	int close() noexcept { return farlog_writer_close(handle_.release()); }

private:
	explicit writer(farlog_writer *handle) noexcept : handle_(handle) {}
	template <class Call> static outcome put(bytes data, bytes key, std::uint16_t class_id, Call call) noexcept
	{
		outcome made{};
		bool fits;
		const farlog_entry entry = detail::entry(data, key, class_id, fits);

		made.result = fits ? call(entry, made.position) : static_cast<int>(FARLOG_TOO_LARGE);
		return made;
	}
	detail::owner<farlog_writer, farlog_writer_close> handle_;
};

/* shared -- one writer for many threads. */
class shared {
public:
	shared() noexcept = default;
	static expected<shared> open(const char *uri, const farlog_writer_config &config = {}) noexcept
	{
		farlog_shared *handle = nullptr;
		farlog::error failure;

		if (farlog_shared_open(uri, &config, &handle, &failure) != FARLOG_OK)
			return failure;
		return shared(handle);
	}
	explicit operator bool() const noexcept { return handle_ != nullptr; }
	farlog_shared *get() const noexcept { return handle_.get(); }

	outcome append(bytes data, bytes key = {}, std::uint16_t class_id = 0, nanoseconds deadline = nanoseconds(0)) noexcept
	{
		outcome made{};
		bool fits;
		const farlog_entry entry = detail::entry(data, key, class_id, fits);

		made.result = fits ? farlog_shared_append(get(), &entry, detail::deadline_ns(deadline), &made.position)
						   : static_cast<int>(FARLOG_TOO_LARGE);
		return made;
	}
	int close() noexcept { return farlog_shared_close(handle_.release()); }

private:
	explicit shared(farlog_shared *handle) noexcept : handle_(handle) {}
	detail::owner<farlog_shared, farlog_shared_close> handle_;
};

/* reader -- reads a ring from outside; with config.is_drain it may release what a store has synced. */
class reader {
public:
	reader() noexcept = default;
	static expected<reader> open(const char *uri, const farlog_reader_config &config = {}) noexcept
	{
		farlog_reader *handle = nullptr;
		farlog::error failure;

		if (farlog_reader_open(uri, &config, &handle, &failure) != FARLOG_OK)
			return failure;
		return reader(handle);
	}
	explicit operator bool() const noexcept { return handle_ != nullptr; }
	farlog_reader *get() const noexcept { return handle_.get(); }

	int read(void *buffer, std::size_t size, farlog_batch &batch) noexcept
	{
		return farlog_reader_read(get(), buffer, size, &batch);
	}
	int release(const farlog_batch &batch) noexcept
	{
		return farlog_reader_release(get(), batch.next_lsn, batch.next_seq, batch.last_epoch);
	}

private:
	explicit reader(farlog_reader *handle) noexcept : handle_(handle) {}
	detail::owner<farlog_reader, farlog_reader_close> handle_;
};

/* format -- make a new, empty ring. */
inline int format(const char *uri, const farlog_ring_config &config, farlog::error &failure) noexcept
{
	return farlog_ring_format(uri, &config, &failure);
}

} // namespace farlog

#endif
