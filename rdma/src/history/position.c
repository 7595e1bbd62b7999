/* history/position.c -- the file of a named consumer: one line of JSON, replaced by a rename; beside it a lock that one
 * living process holds. */
#include "history/position.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

#define HEAD_FORMAT "{\"format\":\"farlog-position\",\"version\":1,\"stream\":\"%s\",\"generation\":"
#define BODY_FORMAT "%" PRIu64 ",\"epoch\":%" PRIu32 ",\"lsn\":%" PRIu64 ",\"next_lsn\":%" PRIu64 "}\n"
#define TEXT_LEN_MAX 1024

/* encode -- as Go's encoding/json writes a string: what is special there, in HTML and in JavaScript is escaped. */
static void encode(const char *text, char *to)
{
	for (; *text != '\0'; text++) {
		uint8_t c = (uint8_t)*text;

		if (c == '"' || c == '\\')
			to += sprintf(to, "\\%c", c);
		else if (c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t')
			to += sprintf(to, "\\%c", c == '\b' ? 'b' : c == '\f' ? 'f' : c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
		else if (c < 0x20 || c == '<' || c == '>' || c == '&')
			to += sprintf(to, "\\u%04x", c);
		else
			*to++ = (char)c;
	}
	*to = '\0';
}

static bool is_name(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len < FARLOG_CONSUMER_NAME_LEN && name[0] != '.' && strchr(name, '/') == NULL;
}

/* make_directories -- as mkdir -p. */
static int make_directories(const char *directory)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s", directory) >= (int)sizeof(path))
		return ENAMETOOLONG;
	for (char *at = path + 1;; at++) {
		char end = *at;

		if (end != '/' && end != '\0')
			continue;
		*at = '\0';
		if (mkdir(path, 0750) != 0 && errno != EEXIST)
			return errno;
		*at = end;
		if (end == '\0')
			return 0;
	}
}

/* find_directory -- of positions, made where it is missing. */
static int find_directory(const char *state_dir, char directory[PATH_MAX], struct farlog_error *error)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int len, os_errno;

	if (state_dir != NULL)
		len = snprintf(directory, PATH_MAX, "%s", state_dir);
	else if (state != NULL && state[0] != '\0')
		len = snprintf(directory, PATH_MAX, "%s/farlog", state);
	else if (home != NULL && home[0] != '\0')
		len = snprintf(directory, PATH_MAX, "%s/.local/state/farlog", home);
	else
		return error_set(
			error, FARLOG_INVALID, 0, "directory of positions: neither XDG_STATE_HOME nor HOME is set; give state_dir");
	if (len <= 0 || len >= PATH_MAX)
		return error_set(
			error, FARLOG_INVALID, 0, "directory of positions: expected a path of 1 to %d bytes", PATH_MAX - 1);
	os_errno = make_directories(directory);
	return os_errno == 0 ? FARLOG_OK :
						   error_set(error, FARLOG_IO, os_errno, "directory of positions \"%s\"", directory);
}

/* lock -- one living process uses a name. The text only helps people; the lock is the flock. */
static int lock(struct position *position, const char *name, struct farlog_error *error)
{
	char path[PATH_MAX + 8];
	char holder[256] = "";
	int os_errno;

	snprintf(path, sizeof(path), "%s.lock", position->path);
	position->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (position->lock_fd < 0)
		return error_set(error, FARLOG_IO, errno, "consumer \"%s\": lock \"%s\"", name, path);
	if (flock(position->lock_fd, LOCK_EX | LOCK_NB) != 0) {
		os_errno = errno;
		if (os_errno != EWOULDBLOCK)
			return error_set(error, FARLOG_IO, os_errno, "consumer \"%s\": lock \"%s\"", name, path);
		if (pread(position->lock_fd, holder, sizeof(holder) - 1, 0) > 0)
			holder[strcspn(holder, "\n")] = '\0';
		return error_set(error, FARLOG_HELD, 0, "consumer \"%s\" is in use: %s; give another name", name, holder);
	}
	snprintf(holder, sizeof(holder), "consumer %s of process %ld\n", name, (long)getpid());
	if (ftruncate(position->lock_fd, 0) == 0 && pwrite(position->lock_fd, holder, strlen(holder), 0) < 0)
		return FARLOG_OK; /* the lock is held, whatever is said of it */
	return FARLOG_OK;
}

/* parse -- what the file says: it must be what position_keep or Go writes, to the byte. */
static int parse(struct position *position, const char *text, const char *name, struct farlog_error *error)
{
	static const char stream_field[] = "{\"format\":\"farlog-position\",\"version\":1,\"stream\":\"";
	char expected[TEXT_LEN_MAX];
	size_t head_len = (size_t)snprintf(expected, sizeof(expected), HEAD_FORMAT, position->stream_json);
	struct farlog_place *place = &position->place;

	if (strncmp(text, stream_field, strlen(stream_field)) != 0)
		return error_set(error, FARLOG_INVALID, 0,
			"position \"%s\" cannot be read: expected \"farlog-position\" version 1; remove it to begin again",
			position->path);
	if (strncmp(text, expected, head_len) != 0)
		return error_set(error, FARLOG_INVALID, 0, "consumer \"%s\" is of another stream than %s: give another name",
			name, position->stream_json);
	if (sscanf(text + head_len, "%" SCNu64 ",\"epoch\":%" SCNu32 ",\"lsn\":%" SCNu64 ",\"next_lsn\":%" SCNu64,
			&place->generation, &place->epoch, &place->lsn, &position->next_lsn) == 4) {
		snprintf(expected + head_len, sizeof(expected) - head_len, BODY_FORMAT, place->generation, place->epoch,
			place->lsn, position->next_lsn);
		position->is_there = strcmp(text, expected) == 0;
	}
	return position->is_there ?
		FARLOG_OK :
		error_set(error, FARLOG_INVALID, 0,
			"position \"%s\" cannot be read: it is cut or was changed; remove it to begin again", position->path);
}

static int load(struct position *position, const char *name, struct farlog_error *error)
{
	char text[TEXT_LEN_MAX] = "";
	ssize_t got;
	int fd = open(position->path, O_RDONLY | O_CLOEXEC);
	int os_errno;

	if (fd < 0 && errno == ENOENT)
		return FARLOG_OK;
	if (fd < 0)
		return error_set(error, FARLOG_IO, errno, "position \"%s\"", position->path);
	got = read(fd, text, sizeof(text) - 1);
	os_errno = errno;
	close(fd);
	return got < 0 ? error_set(error, FARLOG_IO, os_errno, "position \"%s\"", position->path) :
					 parse(position, text, name, error);
}

int position_open(
	struct position *position, const char *state_dir, const char *name, const char *stream, struct farlog_error *error)
{
	char directory[PATH_MAX];
	int result;

	memset(position, 0, sizeof(*position));
	position->lock_fd = -1;
	if (!is_name(name))
		return error_set(error, FARLOG_INVALID, 0,
			"name of a consumer \"%.80s\": expected 1 to %d letters, digits and dashes", name,
			FARLOG_CONSUMER_NAME_LEN - 1);
	encode(stream, position->stream_json);
	result = find_directory(state_dir, directory, error);
	if (result == FARLOG_OK &&
		snprintf(position->path, sizeof(position->path), "%s/%s.json", directory, name) >=
			(int)sizeof(position->path) - 8)
		result = error_set(error, FARLOG_INVALID, 0, "directory of positions \"%.100s...\" is too long", directory);
	if (result == FARLOG_OK)
		result = lock(position, name, error);
	if (result == FARLOG_OK)
		result = load(position, name, error);
	if (result != FARLOG_OK)
		position_close(position);
	return result;
}

/* write_whole -- the new file beside the old one, synced. 0 or errno. */
static int write_whole(const char *path, const char *text)
{
	size_t len = strlen(text);
	int os_errno = 0;
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);

	if (fd < 0)
		return errno;
	errno = 0;
	if (write(fd, text, len) != (ssize_t)len)
		os_errno = errno != 0 ? errno : ENOSPC;
	if (os_errno == 0 && fsync(fd) != 0)
		os_errno = errno;
	if (close(fd) != 0 && os_errno == 0)
		os_errno = errno;
	return os_errno;
}

static int sync_directory_of(const char *path)
{
	char copy[PATH_MAX];
	int os_errno = 0;
	int fd;

	snprintf(copy, sizeof(copy), "%s", path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (fsync(fd) != 0)
		os_errno = errno;
	close(fd);
	return os_errno;
}

int position_keep(
	struct position *position, const struct farlog_place *place, uint64_t next_lsn, struct farlog_error *error)
{
	char text[TEXT_LEN_MAX];
	char path[PATH_MAX + 8];
	int os_errno;

	if (position->is_there && place->generation == position->place.generation &&
		place->epoch == position->place.epoch && place->lsn == position->place.lsn && next_lsn == position->next_lsn)
		return FARLOG_OK;
	snprintf(text, sizeof(text), HEAD_FORMAT BODY_FORMAT, position->stream_json, place->generation, place->epoch,
		place->lsn, next_lsn);
	snprintf(path, sizeof(path), "%s.tmp", position->path);
	os_errno = write_whole(path, text);
	if (os_errno == 0 && rename(path, position->path) != 0)
		os_errno = errno;
	if (os_errno == 0)
		os_errno = sync_directory_of(position->path);
	if (os_errno != 0)
		return error_set(error, FARLOG_IO, os_errno, "position \"%s\"", position->path);
	position->place = *place;
	position->next_lsn = next_lsn;
	position->is_there = true;
	return FARLOG_OK;
}

void position_close(struct position *position)
{
	if (position->lock_fd >= 0)
		close(position->lock_fd);
	position->lock_fd = -1;
}
