/* blocks/lib_uring.c -- loading liburing. */
#include "blocks/lib_uring.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "base/err.h"

#define SONAME "liburing.so.2"
#define PACKAGE "liburing2"

static struct lib_uring loaded;
static char missing[160]; /* why it could not be loaded, "" = it is */

static void load_function(void *handle, const char *name, void **function)
{
	*function = dlsym(handle, name);
	if (*function == NULL) {
		strcpy(missing, SONAME " has no ");
		strncat(missing, name, sizeof(missing) - sizeof(SONAME) - sizeof(" has no "));
	}
}

static void load_library(void)
{
	void *handle = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
	const char *why = handle == NULL ? dlerror() : NULL;

	if (handle == NULL) {
		strncpy(missing, why != NULL ? why : "not found", sizeof(missing) - 1);
		return;
	}
#define LIB_URING_LOAD(name, parameters) load_function(handle, "io_uring_" #name, (void **)&loaded.name);
	LIB_URING_TABLE(LIB_URING_LOAD)
#undef LIB_URING_LOAD
	load_function(handle, "io_uring_queue_exit", (void **)&loaded.queue_exit);
}

int lib_uring_load(const struct lib_uring **lib, struct farlog_error *error)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load_library);
	if (missing[0] != '\0')
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"nvme: regions need the library " SONAME " (Debian package " PACKAGE "): %s", missing);
	*lib = &loaded;
	return FARLOG_OK;
}
