/* wire/lib_ofi.c -- loading libfabric, and what both ends of a connection ask of it. */
#include "wire/lib_ofi.h"

#include <errno.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/err.h"
#include "wire/wire.h"

#define SONAME "libfabric.so.1"
#define PACKAGE "libfabric1"
#define API_VERSION FI_VERSION(1, 14)
#define SIGNAL_COUNT 32
#define INJECT_LEN_MIN 64u /* words and requests go without a buffer of ours */

static struct lib_ofi loaded;
static char missing[160]; /* why it could not be loaded, "" = it is */

static struct fi_info *make_hints(const struct lib_ofi *lib, const char *provider);

/* load_library -- and let it look for its providers once: that loads more libraries. */
static void load_library(void)
{
	struct fi_info *hints;
	struct fi_info *info = NULL;
	void *handle = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
	const char *why = handle == NULL ? dlerror() : NULL;

	if (handle == NULL) {
		strncpy(missing, why != NULL ? why : "not found", sizeof(missing) - 1);
		return;
	}
#define LIB_OFI_LOAD(name, type, parameters) \
	*(void **)&loaded.name = dlsym(handle, "fi_" #name); \
	if (loaded.name == NULL) \
		strcpy(missing, SONAME " has no fi_" #name);
	LIB_OFI_TABLE(LIB_OFI_LOAD)
#undef LIB_OFI_LOAD
	hints = missing[0] == '\0' ? make_hints(&loaded, "tcp") : NULL;
	if (hints != NULL && loaded.getinfo(API_VERSION, NULL, NULL, 0, hints, &info) == 0)
		loaded.freeinfo(info);
	if (hints != NULL)
		loaded.freeinfo(hints);
}

/* Libraries that come along (libpsm2, libinfinipath) take SIGSEGV, SIGINT, SIGTERM and others for themselves when they
 * are loaded. What a signal does is the program's to say, and where it is a virtual machine its life. */
static void load(void)
{
	struct sigaction before[SIGNAL_COUNT];

	for (int number = 1; number < SIGNAL_COUNT; number++)
		if (sigaction(number, NULL, &before[number]) != 0)
			before[number].sa_handler = SIG_ERR;
	load_library();
	for (int number = 1; number < SIGNAL_COUNT; number++) {
		struct sigaction after;

		if (before[number].sa_handler != SIG_ERR && sigaction(number, NULL, &after) == 0 &&
			after.sa_handler != before[number].sa_handler)
			(void)sigaction(number, &before[number], NULL);
	}
}

int lib_ofi_load(const struct lib_ofi **lib, struct farlog_error *error)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	if (missing[0] != '\0')
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"ofi: regions need the library " SONAME " (Debian package " PACKAGE "): %s", missing);
	*lib = &loaded;
	return FARLOG_OK;
}

/* A request must not overtake the writes that it is to flush, and of two writes to one word the later one must stay. */
static struct fi_info *make_hints(const struct lib_ofi *lib, const char *provider)
{
	struct fi_info *hints = lib->dupinfo(NULL);

	if (hints == NULL)
		return NULL;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = 0;
	hints->ep_attr->type = FI_EP_MSG;
	hints->tx_attr->msg_order = FI_ORDER_SAW | FI_ORDER_WAW | FI_ORDER_SAS;
	hints->tx_attr->inject_size = INJECT_LEN_MIN;
	hints->rx_attr->msg_order = FI_ORDER_SAW | FI_ORDER_WAW | FI_ORDER_SAS;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	/* the thread that polls moves the bytes: no other touches the copy */
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->fabric_attr->prov_name = strdup(provider); /* analyzer: freed by freeinfo */
	if (hints->fabric_attr->prov_name == NULL) {
		lib->freeinfo(hints);
		return NULL;
	}
	return hints;
}

/* set_from -- the address that a connection goes out by, where the URI names one. False: no memory. */
static bool set_from(struct fi_info *hints, const struct uri *uri)
{
	struct sockaddr_storage from;
	size_t len = uri_from(uri, &from);

	if (len == 0)
		return true;
	hints->src_addr = malloc(len); /* freed by freeinfo */
	if (hints->src_addr == NULL)
		return false;
	memcpy(hints->src_addr, &from, len);
	hints->src_addrlen = len;
	return true;
}

int ofi_info(const struct lib_ofi *lib, const char *text, const struct uri *uri, uint64_t flags, struct fi_info **info,
	struct farlog_error *error)
{
	struct fi_info *hints = make_hints(lib, uri->provider);
	struct fi_info *any = NULL;
	int failure;

	if (hints == NULL || !set_from(hints, uri)) {
		if (hints != NULL)
			lib->freeinfo(hints);
		return error_set(error, FARLOG_NO_MEMORY, 0, "uri \"%s\": out of memory", text);
	}
	failure = lib->getinfo(API_VERSION, uri->host, uri->port, flags, hints, info);
	if (failure == 0) {
		lib->freeinfo(hints);
		return FARLOG_OK;
	}
	/* The same answer for a host without an address and for a provider that is not there: ask again without a host. */
	if (lib->getinfo(API_VERSION, NULL, NULL, 0, hints, &any) == 0) {
		lib->freeinfo(any);
		lib->freeinfo(hints);
		return error_set(error, FARLOG_NOT_FOUND, 0,
			"uri \"%s\": host \"%s\" has no address that provider \"%s\" can reach: %s", text, uri->host, uri->provider,
			lib->strerror(-failure));
	}
	lib->freeinfo(hints);
	return error_set(error, FARLOG_UNSUPPORTED, 0,
		"uri \"%s\": libfabric %u.%u here has no provider \"%s\" with connected endpoints and ordered remote writes; "
		"expected for example tcp: %s",
		text, FI_MAJOR(lib->version()), FI_MINOR(lib->version()), uri->provider, lib->strerror(-failure));
}

int ofi_register(struct fid_domain *domain, const struct fi_info *info, void *start, uint64_t len, uint64_t access,
	struct fid_mr **mr)
{
	uint64_t key = 0;
	int failure = -FI_ENOKEY;

	/* Whoever knows a key of this domain may write: it is drawn, not counted. */
	for (unsigned i = 0; i < 4 && failure == -FI_ENOKEY; i++) {
		if (getrandom(&key, sizeof(key), 0) != sizeof(key))
			return -errno;
		if (info->domain_attr->mr_key_size < sizeof(key))
			key &= (UINT64_C(1) << info->domain_attr->mr_key_size * 8) - 1;
		failure = fi_mr_reg(domain, start, len, access, 0, key, 0, mr, NULL);
	}
	return failure;
}
