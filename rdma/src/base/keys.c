/* base/keys.c -- reading files of keys, and deriving keys. */
#include "base/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

#define FILE_LEN_MAX 16384u
#define MAC_LEN 32u
#define ID_TEXT "farlog key id"
#define INFO_TEXT "farlog aes-256-gcm"
#define INFO_TEXT_LEN (sizeof(INFO_TEXT) - 1)

const char *keys_default_file(void)
{
	const char *path = secure_getenv("FARLOG_KEY_FILE");

	return path != NULL && path[0] != '\0' ? path : NULL;
}

static bool hmac(const struct keys *keys, const void *key, int key_len, const void *src, size_t len, uint8_t *mac)
{
	unsigned mac_len = MAC_LEN;

	return keys->lib->HMAC(keys->lib->EVP_sha256(), key, key_len, src, len, mac, &mac_len) != NULL &&
		mac_len == MAC_LEN;
}

bool keys_draw_opening(uint8_t opening[KEY_OPENING_LEN])
{
	return getrandom(opening, KEY_OPENING_LEN, 0) == KEY_OPENING_LEN;
}

bool keys_derive(const struct keys *keys, const struct key *key, const uint8_t opening[KEY_OPENING_LEN],
	uint64_t stream_salt, uint8_t derived[KEY_LEN])
{
	uint8_t info[INFO_TEXT_LEN + sizeof(stream_salt) + 1];
	uint8_t extracted[MAC_LEN];
	bool is_done;

	memcpy(info, INFO_TEXT, INFO_TEXT_LEN);
	memcpy(info + INFO_TEXT_LEN, &stream_salt, sizeof(stream_salt));
	info[sizeof(info) - 1] = 1; /* the number of HKDF's block */
	is_done = hmac(keys, opening, KEY_OPENING_LEN, key->bytes, KEY_LEN, extracted) &&
		hmac(keys, extracted, MAC_LEN, info, sizeof(info), derived);
	explicit_bzero(extracted, sizeof(extracted));
	return is_done;
}

const struct key *keys_find(const struct keys *keys, const uint8_t id[KEY_ID_LEN])
{
	for (uint32_t i = 0; i < keys->count; i++)
		if (memcmp(keys->key[i].id, id, KEY_ID_LEN) == 0)
			return &keys->key[i];
	return NULL;
}

/* digit_of -- -1: none. */
static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_key(const char *text, size_t len, uint8_t bytes[KEY_LEN])
{
	if (len != 2 * (size_t)KEY_LEN)
		return false;
	for (unsigned i = 0; i < KEY_LEN; i++) {
		int high = digit_of(text[2 * i]);
		int low = digit_of(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* add_key -- one line of the file. */
static int add_key(
	struct keys *keys, const char *path, unsigned number, const char *text, size_t len, struct farlog_error *error)
{
	struct key *key = &keys->key[keys->count];
	uint8_t mac[MAC_LEN];

	while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\r' || text[len - 1] == '\t'))
		len--;
	if (len == 0 || text[0] == '#')
		return FARLOG_OK;
	if (keys->count == KEY_COUNT_MAX)
		return error_set(
			error, FARLOG_INVALID, 0, "key file \"%s\": more than %u keys; remove the oldest", path, KEY_COUNT_MAX);
	if (!parse_key(text, len, key->bytes))
		return error_set(error, FARLOG_INVALID, 0,
			"key file \"%s\", line %u: %zu characters that are no key; expected %u hexadecimal digits, such as openssl "
			"rand -hex %u prints",
			path, number, len, 2 * KEY_LEN, KEY_LEN);
	if (!hmac(keys, key->bytes, KEY_LEN, ID_TEXT, sizeof(ID_TEXT) - 1, mac))
		return error_set(error, FARLOG_IO, 0, "key file \"%s\": libcrypto gives no HMAC of SHA-256", path);
	memcpy(key->id, mac, KEY_ID_LEN);
	keys->count++;
	return FARLOG_OK;
}

static int parse_file(struct keys *keys, const char *path, const char *text, size_t len, struct farlog_error *error)
{
	const char *end = text + len;
	int result = FARLOG_OK;

	for (unsigned number = 1; text < end && result == FARLOG_OK; number++) {
		const char *line_end = memchr(text, '\n', (size_t)(end - text));

		if (line_end == NULL)
			line_end = end;
		result = add_key(keys, path, number, text, (size_t)(line_end - text), error);
		text = line_end + 1;
	}
	if (result == FARLOG_OK && keys->count == 0)
		result = error_set(error, FARLOG_INVALID, 0,
			"key file \"%s\" holds no key; expected %u hexadecimal digits a line, such as openssl rand -hex %u prints",
			path, 2 * KEY_LEN, KEY_LEN);
	return result;
}

/* read_file -- *len: of its content, at most FILE_LEN_MAX. */
static int read_file(const char *path, char *text, size_t *len, struct farlog_error *error)
{
	struct stat status;
	ssize_t got = 1;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int result = FARLOG_OK;

	*len = 0;
	if (fd < 0)
		return error_set(error, errno == ENOENT ? FARLOG_NOT_FOUND : FARLOG_IO, errno, "open key file \"%s\"", path);
	if (fstat(fd, &status) != 0)
		result = error_set(error, FARLOG_IO, errno, "look at key file \"%s\"", path);
	else if ((status.st_mode & 077) != 0)
		result = error_set(error, FARLOG_INVALID, 0,
			"key file \"%s\" can be read by others than its owner (mode %04o): chmod 600 %s", path,
			status.st_mode & 07777, path);
	while (result == FARLOG_OK && got > 0 && *len < FILE_LEN_MAX) {
		got = read(fd, text + *len, FILE_LEN_MAX - *len);
		if (got < 0 && errno == EINTR)
			got = 1;
		else if (got < 0)
			result = error_set(error, FARLOG_IO, errno, "read key file \"%s\"", path);
		else
			*len += (size_t)got;
	}
	if (result == FARLOG_OK && *len == FILE_LEN_MAX)
		result = error_set(error, FARLOG_INVALID, 0,
			"key file \"%s\" has %u bytes or more; expected %u hexadecimal "
			"digits a line",
			path, FILE_LEN_MAX, 2 * KEY_LEN);
	close(fd);
	return result;
}

int keys_open(const char *path, struct keys **opened, struct farlog_error *error)
{
	struct keys *keys = calloc(1, sizeof(*keys));
	char *text = malloc(FILE_LEN_MAX);
	size_t len = 0;
	int result = FARLOG_OK;

	*opened = NULL;
	if (keys == NULL || text == NULL)
		result = error_set(error, FARLOG_NO_MEMORY, 0, "key file \"%s\": out of memory", path);
	if (result == FARLOG_OK)
		result = lib_crypto_load(&keys->lib, error);
	if (result == FARLOG_OK)
		result = read_file(path, text, &len, error);
	if (result == FARLOG_OK)
		result = parse_file(keys, path, text, len, error);
	if (text != NULL)
		explicit_bzero(text, FILE_LEN_MAX);
	free(text);
	if (result != FARLOG_OK) {
		keys_close(keys);
		return result;
	}
	*opened = keys;
	return FARLOG_OK;
}

void keys_close(struct keys *keys)
{
	if (keys != NULL)
		explicit_bzero(keys, sizeof(*keys));
	free(keys);
}
