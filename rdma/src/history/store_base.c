/* history/store_base.c -- where a stream of a store begins. */
#include "history/store_base.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* newest_number -- of a base manifest in the directory; 0: there is none. */
static int newest_number(const struct store_dir *dir, uint64_t *newest, struct farlog_error *error)
{
	DIR *entries = opendir(dir->path);
	struct dirent *entry;

	*newest = 0;
	if (entries == NULL)
		return error_set(error, FARLOG_IO, errno, "list \"%s\"", dir->path);
	errno = 0;
	while ((entry = readdir(entries)) != NULL) {
		char *end;
		uint64_t number = strtoull(entry->d_name, &end, 10);

		if (end != entry->d_name && strcmp(end, ".base") == 0 && number > *newest)
			*newest = number;
		errno = 0;
	}
	if (errno != 0) {
		int os_errno = errno;

		closedir(entries);
		return error_set(error, FARLOG_IO, os_errno, "list \"%s\"", dir->path);
	}
	closedir(entries);
	return FARLOG_OK;
}

/* read_field -- a number of the manifest. The name of a field cannot be within a string: there its quotes are
 * escaped. */
static bool read_field(const char *raw, const char *name, uint64_t *value)
{
	char field[32];
	const char *found;
	char *end;

	snprintf(field, sizeof(field), "\"%s\":", name);
	found = strstr(raw, field);
	if (found == NULL)
		return false;
	found += strlen(field);
	*value = strtoull(found, &end, 10);
	return end != found && *found >= '0' && *found <= '9' && (*end == ',' || *end == '}');
}

static bool parse(const char *raw, struct store_base *base)
{
	uint64_t epoch;

	if (!read_field(raw, "segment", &base->segment) || !read_field(raw, "generation", &base->last.generation) ||
		!read_field(raw, "last_epoch", &epoch) || epoch > UINT32_MAX || !read_field(raw, "last_lsn", &base->last.lsn) ||
		!read_field(raw, "next_lsn", &base->next_lsn) || !read_field(raw, "next_seq", &base->next_seq) ||
		!read_field(raw, "removed_segments", &base->removed_segments))
		return false;
	base->last.epoch = (uint32_t)epoch;
	return true;
}

int store_base_find(const struct store_dir *dir, struct store_base *base, struct farlog_error *error)
{
	char path[PATH_MAX + 32];
	uint64_t newest;
	uint8_t *raw;
	size_t len;
	int result = newest_number(dir, &newest, error);

	memset(base, 0, sizeof(*base));
	base->segment = 1;
	if (result != FARLOG_OK || newest == 0)
		return result;
	store_segment_path(dir, newest, ".base", path);
	result = store_file_load(path, &raw, &len);
	if (result != FARLOG_OK)
		return error_set(error, result == FARLOG_NOT_FOUND ? FARLOG_IO : result, 0, "read base manifest \"%s\"", path);
	base->is_there = parse((const char *)raw, base) && base->segment == newest;
	free(raw);
	if (!base->is_there)
		return error_set(error, FARLOG_CORRUPT, 0, "base manifest \"%s\" does not say where the stream begins", path);
	return FARLOG_OK;
}

int store_base_fits(const struct store_dir *dir, const struct store_base *base, const struct store_segment *first,
	struct farlog_error *error)
{
	if (!base->is_there)
		return FARLOG_OK;
	if (first == NULL && (base->segment == 1 || base->removed_segments == 0))
		return FARLOG_OK;
	if (first == NULL)
		return error_set(error, FARLOG_CORRUPT, 0,
			"stream \"%s\" in \"%s\": segment %lu is missing: the base manifest says that the stream begins with it",
			dir->stream, dir->path, base->segment);
	if (first->generation == base->last.generation && first->prev_epoch == base->last.epoch &&
		first->prev_next_lsn == base->next_lsn && first->prev_next_seq == base->next_seq)
		return FARLOG_OK;
	if (first->generation == base->last.generation + 1 && first->prev_epoch == 0)
		return FARLOG_OK;
	return error_set(error, FARLOG_CORRUPT, 0,
		"stream \"%s\" in \"%s\": segment %lu begins behind lsn %lu of generation %lu, its base manifest says lsn %lu "
		"of generation %lu; see farlog verify",
		dir->stream, dir->path, first->number, first->prev_next_lsn, first->generation, base->next_lsn,
		base->last.generation);
}

int store_base_refuse(const struct store_dir *dir, const struct store_base *base, struct farlog_error *error)
{
	return error_set(error, FARLOG_NOT_FOUND, 0,
		"stream \"%s\" in \"%s\" begins at segment %lu, behind lsn %lu of generation %lu: what lies before was removed "
		"by retention; begin at the oldest record that is there",
		dir->stream, dir->path, base->segment, base->last.lsn, base->last.generation);
}
