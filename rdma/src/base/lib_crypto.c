/* base/lib_crypto.c -- loading libcrypto. */
#include "base/lib_crypto.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "base/err.h"

#define SONAME "libcrypto.so.3"
#define PACKAGE "libssl3"

static struct lib_crypto loaded;
static char missing[160]; /* why it could not be loaded, "" = it is */

static void load_function(void *handle, const char *name, void **function)
{
	*function = dlsym(handle, name);
	if (*function == NULL)
		snprintf(missing, sizeof(missing), SONAME " has no %s", name);
}

static void load_library(void)
{
	void *handle = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
	const char *why = handle == NULL ? dlerror() : NULL;

	if (handle == NULL) {
		snprintf(missing, sizeof(missing), "%s", why != NULL ? why : "not found");
		return;
	}
#define LIB_CRYPTO_LOAD(type, name, parameters) load_function(handle, #name, (void **)&loaded.name);
	LIB_CRYPTO_TABLE(LIB_CRYPTO_LOAD)
#undef LIB_CRYPTO_LOAD
}

int lib_crypto_load(const struct lib_crypto **lib, struct farlog_error *error)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load_library);
	if (missing[0] != '\0')
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"encryption needs the library " SONAME " (Debian package " PACKAGE "): %s", missing);
	*lib = &loaded;
	return FARLOG_OK;
}
