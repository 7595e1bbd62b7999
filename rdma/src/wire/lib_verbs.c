/* wire/lib_verbs.c -- loading libibverbs and librdmacm. */
#include "wire/lib_verbs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "base/err.h"

#define IBVERBS_SONAME "libibverbs.so.1"
#define RDMACM_SONAME "librdmacm.so.1"

static struct lib_verbs loaded;
static char missing[200]; /* why it could not be loaded, "" = it is */

static void *open_library(const char *soname)
{
	void *handle = missing[0] == '\0' ? dlopen(soname, RTLD_NOW | RTLD_LOCAL) : NULL;

	if (handle == NULL && missing[0] == '\0') {
		const char *why = dlerror();

		snprintf(missing, sizeof(missing), "%s", why != NULL ? why : "not found");
	}
	return handle;
}

/* The version that a program linked today would get, which is what the headers describe. */
static void *find(void *handle, const char *soname, const char *symbol)
{
	void *address = handle != NULL ? dlsym(handle, symbol) : NULL;

	if (address == NULL && missing[0] == '\0')
		snprintf(missing, sizeof(missing), "%s has no %s", soname, symbol);
	return address;
}

static void load(void)
{
	void *ibverbs = open_library(IBVERBS_SONAME);
	void *rdmacm = open_library(RDMACM_SONAME);

#define LOAD_IBVERBS(name, symbol) *(void **)&loaded.name = find(ibverbs, IBVERBS_SONAME, #symbol);
#define LOAD_RDMACM(name, symbol) *(void **)&loaded.name = find(rdmacm, RDMACM_SONAME, #symbol);
	if (ibverbs != NULL)
		*(void **)&loaded.reg_dmabuf_mr = dlsym(ibverbs, "ibv_reg_dmabuf_mr");
	LIB_VERBS_TABLE(LOAD_IBVERBS)
	LIB_RDMACM_TABLE(LOAD_RDMACM)
#undef LOAD_IBVERBS
#undef LOAD_RDMACM
}

int lib_verbs_load(const struct lib_verbs **lib, struct farlog_error *error)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	if (missing[0] != '\0')
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"verbs: regions need " IBVERBS_SONAME " and " RDMACM_SONAME
			" (Debian packages librdmacm1 and ibverbs-providers): %s",
			missing);
	*lib = &loaded;
	return FARLOG_OK;
}
