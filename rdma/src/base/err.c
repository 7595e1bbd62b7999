/* base/err.c -- results, their names and their texts. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct farlog_error *error, int result, int os_errno, const char *format, ...)
{
	va_list args;
	int used;

	if (error == NULL)
		return result;
	error->result = result;
	error->os_errno = os_errno;
	va_start(args, format);
	used = vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	if (os_errno != 0 && used >= 0 && (size_t)used < sizeof(error->text)) {
		char reason[96];

		snprintf(error->text + used, sizeof(error->text) - (size_t)used, ": %s",
			strerror_r(os_errno, reason, sizeof(reason)));
	}
	return result;
}

const char *farlog_version(void)
{
	return FARLOG_VERSION;
}

const char *farlog_result_name(int result)
{
	switch (result) {
#define RESULT_NAME(name, value, text) \
	case value: \
		return #name;
		FARLOG_RESULT_TABLE(RESULT_NAME)
#undef RESULT_NAME
	default:
		return "?";
	}
}

const char *farlog_result_text(int result)
{
	switch (result) {
#define RESULT_TEXT(name, value, text) \
	case value: \
		return text;
		FARLOG_RESULT_TABLE(RESULT_TEXT)
#undef RESULT_TEXT
	default:
		return "unknown result";
	}
}

const char *farlog_level_name(int level)
{
	static const char *const names[] = {"none", "posted", "visible", "persistent", "stored", "archived"};

	return level >= 0 && level < (int)(sizeof(names) / sizeof(names[0])) ? names[level] : "?";
}
