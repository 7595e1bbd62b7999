/* types.hpp -- the words of the C++ layer: spans, results, errors, entries, options. Included by farlog.hpp, whose
 * conventions hold. */
#ifndef FARLOG_TYPES_HPP
#define FARLOG_TYPES_HPP

#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#if defined(__has_include)
#if __has_include(<version>)
#include <version>
#endif
#endif
#if defined(__cpp_lib_span)
#include <span>
#endif

#include "farlog/farlog.h"

namespace farlog {

/* Units that are compiled as C++17 and as C++20 may be linked together: their spans differ, so their names do. */
#if defined(__cpp_lib_span)
#define FARLOG_HPP_SPAN with_std_span
#else
#define FARLOG_HPP_SPAN with_own_span
#endif
inline namespace FARLOG_HPP_SPAN {

#if defined(__cpp_lib_span)
template <class T> using span = std::span<T>;
#else
/* span -- the part of std::span that is needed here; with C++20 it is std::span. */
template <class T> class span {
public:
	using element_type = T;
	using value_type = std::remove_cv_t<T>;

	constexpr span() noexcept = default;
	constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
	template <std::size_t N> constexpr span(T (&array)[N]) noexcept : data_(array), size_(N) {}
	template <class Container, class Pointer = decltype(std::declval<Container &>().data()),
		class = decltype(std::declval<Container &>().size()),
		class = std::enable_if_t<std::is_convertible_v<std::remove_pointer_t<Pointer> (*)[], T (*)[]>>>
	constexpr span(Container &&container) noexcept : data_(container.data()), size_(container.size())
	{
	}

	constexpr T *data() const noexcept { return data_; }
	constexpr std::size_t size() const noexcept { return size_; }
	constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
	constexpr bool empty() const noexcept { return size_ == 0; }
	constexpr T &operator[](std::size_t i) const noexcept { return data_[i]; }
	constexpr T *begin() const noexcept { return data_; }
	constexpr T *end() const noexcept { return data_ + size_; }
	constexpr span first(std::size_t count) const noexcept { return {data_, count}; }
	constexpr span subspan(std::size_t off) const noexcept { return {data_ + off, size_ - off}; }

private:
	T *data_ = nullptr;
	std::size_t size_ = 0;
};
#endif

/* bytes -- a view of somebody's memory to read from: anything contiguous with data() and size(), text, or pointer and
 * length. */
class bytes {
public:
	constexpr bytes() noexcept = default;
	constexpr bytes(const void *data, std::size_t size) noexcept : data_(data), size_(size) {}
	template <class Container,
		class Element = std::remove_pointer_t<decltype(std::declval<const Container &>().data())>,
		class = decltype(std::declval<const Container &>().size()),
		class = std::enable_if_t<std::is_trivially_copyable_v<Element> && !std::is_same_v<Container, bytes>>>
	constexpr bytes(const Container &container) noexcept
		: data_(container.data()), size_(container.size() * sizeof(Element))
	{
	}
	constexpr bytes(const char *text) noexcept : bytes(std::string_view(text)) {}

	constexpr const void *data() const noexcept { return data_; }
	constexpr std::size_t size() const noexcept { return size_; }
	constexpr bool empty() const noexcept { return size_ == 0; }
	std::string_view text() const noexcept { return {static_cast<const char *>(data_), size_}; }

private:
	const void *data_ = nullptr;
	std::size_t size_ = 0;
};

/* result -- FARLOG_RESULT_TABLE of farlog.h, with its names in the small letters of this layer. */
enum class [[nodiscard]] result : int {
	ok = FARLOG_OK,
	full = FARLOG_FULL,
	fenced = FARLOG_FENCED,
	too_large = FARLOG_TOO_LARGE,
	closed = FARLOG_CLOSED,
	unknown = FARLOG_UNKNOWN,
	not_yet = FARLOG_NOT_YET,
	not_found = FARLOG_NOT_FOUND,
	invalid = FARLOG_INVALID,
	held = FARLOG_HELD,
	not_a_ring = FARLOG_NOT_A_RING,
	corrupt = FARLOG_CORRUPT,
	level = FARLOG_LEVEL,
	io = FARLOG_IO,
	no_memory = FARLOG_NO_MEMORY,
	exists = FARLOG_EXISTS,
	overrun = FARLOG_OVERRUN,
	unsupported = FARLOG_UNSUPPORTED,
	no_key = FARLOG_NO_KEY,
};
#define FARLOG_HPP_COUNT(name, value, text) +1
static_assert(
	(0 FARLOG_RESULT_TABLE(FARLOG_HPP_COUNT)) == 19, "farlog.h has another result: name it in enum class result");
#undef FARLOG_HPP_COUNT

/* name -- "FULL" for result::full. text -- its sentence. Both live for ever. */
inline const char *name(result code) noexcept
{
	return farlog_result_name(static_cast<int>(code));
}
inline const char *text(result code) noexcept
{
	return farlog_result_text(static_cast<int>(code));
}

enum class level : std::uint32_t {
	none = FARLOG_LEVEL_NONE,
	posted = FARLOG_LEVEL_POSTED,
	visible = FARLOG_LEVEL_VISIBLE,
	persistent = FARLOG_LEVEL_PERSISTENT,
	stored = FARLOG_LEVEL_STORED,
	archived = FARLOG_LEVEL_ARCHIVED,
};
inline const char *name(level reached) noexcept
{
	return farlog_level_name(static_cast<int>(reached));
}

/* policy -- of a full ring: block waits for the drain until the deadline, reject answers at once. */
enum class policy : std::uint32_t { block = FARLOG_POLICY_BLOCK, reject = FARLOG_POLICY_REJECT };

using nanoseconds = std::chrono::nanoseconds;
inline constexpr nanoseconds default_deadline{0}; /* the writer's */
using position = farlog_position;
using contract = farlog_contract;
using recovery = farlog_recovery;
using cursors = farlog_cursors;
using ring_status = farlog_ring_status;

/* error -- what a cold call has to say. */
struct error : farlog_error {
	error() noexcept : farlog_error{} {}
	farlog::result code() const noexcept { return static_cast<farlog::result>(farlog_error::result); }
	std::string_view what() const noexcept { return text; }
};

/* expected -- a value, or an error when it is false. Asking for the one that is not there is a programmer's error:
 * assert. */
template <class T> class [[nodiscard]] expected {
public:
	expected(T &&value) noexcept : value_(std::move(value)) {}
	expected(const farlog::error &failure) noexcept : error_(failure) {}

	bool has_value() const noexcept { return value_.has_value(); }
	explicit operator bool() const noexcept { return has_value(); }
	T &value() & noexcept
	{
		assert(value_);
		return *value_;
	}
	T &&value() && noexcept
	{
		assert(value_);
		return std::move(*value_);
	}
	T &operator*() & noexcept { return value(); }
	T &&operator*() && noexcept { return std::move(*this).value(); }
	T *operator->() noexcept { return &value(); }
	const farlog::error &error() const noexcept
	{
		assert(!value_);
		return error_;
	}

private:
	std::optional<T> value_;
	farlog::error error_;
};

/* expected<void> -- done, or an error when it is false. */
template <> class [[nodiscard]] expected<void> {
public:
	expected() noexcept = default;
	expected(const farlog::error &failure) noexcept : is_done_(false), error_(failure) {}

	explicit operator bool() const noexcept { return is_done_; }
	const farlog::error &error() const noexcept
	{
		assert(!is_done_);
		return error_;
	}

private:
	bool is_done_ = true;
	farlog::error error_;
};

/* outcome -- of one append. full, fenced, too_large, closed, invalid: nothing was written. unknown: position.lsn is
 * set, the record may or may not be there, and resolve finds out. fenced: position.epoch is the epoch that fenced. */
struct [[nodiscard]] outcome {
	farlog::result result = farlog::result::closed;
	farlog::position position{};

	explicit operator bool() const noexcept { return result == farlog::result::ok; }
	const char *name() const noexcept { return farlog::name(result); }
};

/* entry -- what an application appends: data, and optionally a key that finds the record again and its kind. Views, not
 * copies. A data or key too long for any record (4 GiB, 64 KiB) is refused as too_large. */
struct entry : farlog_entry {
	entry() noexcept : farlog_entry{} {}
	entry(bytes payload, bytes name = {}, std::uint16_t kind = 0) noexcept
		: farlog_entry{payload.data(), fits(payload, name) ? static_cast<std::uint32_t>(payload.size()) : UINT32_MAX,
			  kind, static_cast<std::uint16_t>(name.size()), name.data()}
	{
	}

private:
	static bool fits(bytes payload, bytes name) noexcept
	{
		return payload.size() <= UINT32_MAX && name.size() <= UINT16_MAX;
	}
};
static_assert(sizeof(entry) == sizeof(farlog_entry), "spans of entries are handed to C as they are");

/* batch_outcome -- of one group. positions[0..done) are acknowledged. With unknown, positions[done..submitted) may be
 * written. */
struct [[nodiscard]] batch_outcome {
	farlog::result result = farlog::result::closed;
	std::size_t done = 0;
	std::size_t submitted = 0;

	explicit operator bool() const noexcept { return result == farlog::result::ok; }
};

/* writer_options -- as farlog_writer_config, whose comments hold. Pointers are read during open only. */
struct writer_options {
	farlog::level level = farlog::level::persistent;
	farlog::policy policy = farlog::policy::block;
	bool is_spinning = false;                /* wait without ever sleeping: for a thread on a core of its own */
	std::uint32_t epoch = 0;                 /* from a grant; 0 = one more than the ring's last */
	nanoseconds deadline{0};                 /* default of an append; 0 = the contract's (memory 1 ms, msync 1 s) */
	std::uint32_t warn_percent = 0;          /* 0 = 70 */
	std::uint32_t alarm_percent = 0;         /* 0 = 85 */
	const char *name = nullptr;              /* nullptr = the program's */
	const char *counters_dir = nullptr;      /* nullptr = /dev/shm/farlog, "" = private to this process */
	const std::uint8_t *ring_uuid = nullptr; /* 16 bytes; nullptr = take what is there */
};

namespace detail {
template <class Handle, auto Close> struct closer {
	void operator()(Handle *handle) const noexcept { (void)Close(handle); }
};
template <class Handle, auto Close> using owner = std::unique_ptr<Handle, closer<Handle, Close>>;

/* Negative durations are over already; 0 would mean the default. */
inline std::uint64_t deadline_ns(nanoseconds deadline) noexcept
{
	return deadline.count() < 0 ? 1 : static_cast<std::uint64_t>(deadline.count());
}

inline farlog_writer_config config(const writer_options &options) noexcept
{
	farlog_writer_config made{};

	made.level = static_cast<std::uint32_t>(options.level);
	made.policy = static_cast<std::uint32_t>(options.policy);
	made.wait = options.is_spinning ? FARLOG_WAIT_SPIN : FARLOG_WAIT_BACKOFF;
	made.epoch = options.epoch;
	made.deadline_ns = deadline_ns(options.deadline);
	made.warn_percent = options.warn_percent;
	made.alarm_percent = options.alarm_percent;
	made.writer_name = options.name;
	made.counters_dir = options.counters_dir;
	made.ring_uuid = options.ring_uuid;
	return made;
}

/* opened -- runs a cold call that fills a handle. */
template <class Wrapped, class Handle, class Call> expected<Wrapped> opened(Call call) noexcept
{
	Handle *handle = nullptr;
	error failure;

	if (call(&handle, &failure) != FARLOG_OK)
		return failure;
	return Wrapped(handle);
}
} // namespace detail

} // inline namespace
} // namespace farlog

#endif
