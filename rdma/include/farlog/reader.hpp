/* reader.hpp -- reading a ring from outside, and what else is done to a ring by its name. Included by farlog.hpp, whose
 * conventions hold. */
#ifndef FARLOG_READER_HPP
#define FARLOG_READER_HPP

#include <cstring>
#include <iterator>

#include "farlog/types.hpp"

namespace farlog {
inline namespace FARLOG_HPP_SPAN {

/* record -- one record of a batch. key and payload are views into the reader's buffer. */
struct record {
	std::uint64_t lsn;
	std::uint64_t seq;
	std::uint64_t timestamp_ns; /* UTC since 1970 */
	std::uint32_t clock_err_ns; /* bound on the error of timestamp_ns, UINT32_MAX = unknown */
	std::uint32_t epoch;
	std::uint32_t stream_id;
	std::uint16_t class_id;
	std::uint16_t flags; /* not 0: farlog's own, EPOCH or HEARTBEAT (docs/reference/format.md) */
	bytes key;
	bytes payload;

	bool is_control() const noexcept { return flags != 0; }
};

namespace detail {
template <class Word> Word field(const std::byte *raw, std::size_t off) noexcept
{
#if defined(__BYTE_ORDER__)
	static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
		"records are little endian; so is every machine that farlog runs on");
#endif
	Word word;

	std::memcpy(&word, raw + off, sizeof(word));
	return word;
}
} // namespace detail

/* batch -- what one read copied: a range of whole, checked records (PADs are passed over). It views the buffer that was
 * given to read, and is valid until that is written again. */
class batch : public farlog_batch {
public:
	class iterator {
	public:
		using value_type = record;
		using reference = record;
		using difference_type = std::ptrdiff_t;
		using pointer = const record *;
		using iterator_category = std::input_iterator_tag;

		iterator() noexcept = default;
		/* docs/reference/format.md, section 2. */
		record operator*() const noexcept
		{
			const std::size_t key_len = detail::field<std::uint16_t>(at_, 46);

			return {detail::field<std::uint64_t>(at_, 8), detail::field<std::uint64_t>(at_, 24),
				detail::field<std::uint64_t>(at_, 32), detail::field<std::uint32_t>(at_, 40),
				detail::field<std::uint32_t>(at_, 16), detail::field<std::uint32_t>(at_, 48),
				detail::field<std::uint16_t>(at_, 44), detail::field<std::uint16_t>(at_, 6), bytes(at_ + 56, key_len),
				bytes(at_ + 56 + key_len, detail::field<std::uint32_t>(at_, 20))};
		}
		iterator &operator++() noexcept
		{
			at_ += stored_len();
			skip_pads();
			return *this;
		}
		iterator operator++(int) noexcept
		{
			const iterator before = *this;

			++*this;
			return before;
		}
		friend bool operator==(const iterator &a, const iterator &b) noexcept { return a.at_ == b.at_; }
		friend bool operator!=(const iterator &a, const iterator &b) noexcept { return a.at_ != b.at_; }

	private:
		friend class batch;
		iterator(const std::byte *at, const std::byte *end, std::uint32_t align) noexcept
			: at_(at), end_(end), align_(align)
		{
			skip_pads();
		}
		bool is_pad() const noexcept { return (detail::field<std::uint16_t>(at_, 6) & 1) != 0; }
		std::size_t stored_len() const noexcept
		{
			const std::size_t len =
				64 + std::size_t{detail::field<std::uint32_t>(at_, 20)} + detail::field<std::uint16_t>(at_, 46);

			return is_pad() ? 64 : (len + align_ - 1) / align_ * align_;
		}
		void skip_pads() noexcept
		{
			while (at_ != end_ && is_pad())
				at_ += 64;
		}
		const std::byte *at_ = nullptr;
		const std::byte *end_ = nullptr;
		std::uint32_t align_ = 64;
	};

	batch() noexcept : farlog_batch{} {}
	iterator begin() const noexcept { return {raw_, raw_ + (raw_ != nullptr ? len : 0), align_}; }
	iterator end() const noexcept
	{
		return {raw_ + (raw_ != nullptr ? len : 0), raw_ + (raw_ != nullptr ? len : 0), align_};
	}
	/* raw -- the records verbatim, back to back: what a store keeps. */
	bytes raw() const noexcept { return raw_ != nullptr ? bytes(raw_, len) : bytes(); }

private:
	friend class reader;
	const std::byte *raw_ = nullptr;
	std::uint32_t align_ = 64;
};

/* reader_options -- as farlog_reader_config, whose comments hold. */
struct reader_options {
	farlog_reader_start start = FARLOG_START_HEAD;
	std::uint64_t lsn = 0;                   /* for FARLOG_START_LSN */
	bool is_drain = false;                   /* take the drain's lock; only then release */
	const std::uint8_t *ring_uuid = nullptr; /* 16 bytes; nullptr = take what is there */
};

/* reader -- reads a ring from outside; one that is the drain may release what a store has synced. One thread at a
 * time. */
class reader {
public:
	reader() noexcept = default;
	/* open -- errors: not_found, not_a_ring, held, overrun (lsn below the head), corrupt, io. */
	static expected<reader> open(const char *uri, const reader_options &options = {}) noexcept
	{
		farlog_reader_config config{};

		config.start = options.start;
		config.lsn = options.lsn;
		config.is_drain = options.is_drain;
		config.ring_uuid = options.ring_uuid;
		return detail::opened<reader, farlog_reader>([&](farlog_reader **handle, farlog_error *failure) {
			return farlog_reader_open(uri, &config, handle, failure);
		});
	}
	explicit operator bool() const noexcept { return handle_ != nullptr; }
	farlog_reader *get() const noexcept { return handle_.get(); }

	/* read -- copy whole, checked records into the buffer. Blocks at most 10 us. ok; not_yet: nothing new; too_large:
	 * the next record takes into.len bytes; corrupt; overrun (not for a drain): open again at the head. */
	farlog::result read(span<std::byte> buffer, batch &into) noexcept
	{
		into = batch();
		if (!handle_)
			return farlog::result::closed;
		const auto result = static_cast<farlog::result>(farlog_reader_read(get(), buffer.data(), buffer.size(), &into));
		if (result == farlog::result::ok)
			into.raw_ = buffer.data();
		into.align_ = align_;
		return result;
	}
	/* release -- everything before the end of this batch is synced in the store: the writer may have the space. Blocks
	 * for the media. Before that sync it would lose records. invalid: not a drain, or it goes back. */
	farlog::result release(const farlog_batch &through) noexcept
	{
		return handle_ ? static_cast<farlog::result>(
							 farlog_reader_release(get(), through.next_lsn, through.next_seq, through.last_epoch)) :
						 farlog::result::closed;
	}
	void close() noexcept { handle_.reset(); }

private:
	template <class Wrapped, class Handle, class Call> friend expected<Wrapped> detail::opened(Call) noexcept;
	explicit reader(farlog_reader *handle) noexcept : handle_(handle)
	{
		ring_status status{};

		if (farlog_reader_status(handle, &status) == FARLOG_OK && status.align != 0)
			align_ = status.align;
	}
	static int close_handle(farlog_reader *handle) noexcept
	{
		farlog_reader_close(handle);
		return FARLOG_OK;
	}
	detail::owner<farlog_reader, close_handle> handle_;
	std::uint32_t align_ = 64;
};

/* ring -- what can be done to a ring by its name. All are cold and block for the media. */
namespace ring {
/* format -- make a new, empty ring and persist it. Errors: exists, held, invalid, io, unsupported. */
inline expected<void> format(const char *uri, const farlog_ring_config &config) noexcept
{
	error failure;

	return farlog_ring_format(uri, &config, &failure) == FARLOG_OK ? expected<void>() : expected<void>(failure);
}
/* inspect -- identity, cursors and lag, read only. Errors: not_found, not_a_ring, corrupt, io. */
inline expected<ring_status> inspect(const char *uri) noexcept
{
	error failure;
	ring_status status{};

	if (farlog_ring_inspect(uri, &status, &failure) != FARLOG_OK)
		return failure;
	return expected<ring_status>(std::move(status));
}
/* fence -- order that writers below epoch_min stop. Errors: invalid, held, not_found, not_a_ring, io. */
inline expected<void> fence(const char *uri, std::uint32_t epoch_min) noexcept
{
	error failure;

	return farlog_ring_fence(uri, epoch_min, &failure) == FARLOG_OK ? expected<void>() : expected<void>(failure);
}
/* probe -- a region's contract, without touching its bytes. */
inline expected<contract> probe(const char *uri) noexcept
{
	error failure;
	contract seen{};

	if (farlog_region_probe(uri, &seen, &failure) != FARLOG_OK)
		return failure;
	return expected<contract>(std::move(seen));
}
} // namespace ring

} // inline namespace
} // namespace farlog

#endif
