/* test_verbs_address.c -- which address of a name is dialled, and what is said of the GID that the connection manager
 * took for it, over a tree as sysfs has it. What a device really has is looked at by verbs_test. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"
#include "wire/verbs_address.h"
#include "wire/verbs_device.h"

#define MAPPED "0000:0000:0000:0000:0000:ffff:0a09:0001"
#define LOCAL "fe80:0000:0000:0000:5054:00ff:fe12:3456"

static char base[32];
static char root[48]; /* as /sys/class/infiniband: /sys/class/net lies beside it */

static void write_text(const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/mlx5_0/ports/2/%s", root, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void write_gid(unsigned index, const char *gid, const char *type)
{
	char name[64];

	snprintf(name, sizeof(name), "gids/%u", index);
	write_text(name, gid);
	snprintf(name, sizeof(name), "gid_attrs/types/%u", index);
	write_text(name, type);
}

static int make_tree(void **state)
{
	static const char *const parts[] = {"/../net", "/../net/eth7", "/mlx5_0", "/mlx5_0/ports", "/mlx5_0/ports/2",
		"/mlx5_0/ports/2/gids", "/mlx5_0/ports/2/gid_attrs", "/mlx5_0/ports/2/gid_attrs/types",
		"/mlx5_0/ports/2/gid_attrs/ndevs"};
	char path[256];

	(void)state;
	snprintf(base, sizeof(base), "/tmp/farlog-unit-gid.XXXXXX");
	if (mkdtemp(base) == NULL)
		return -1;
	snprintf(root, sizeof(root), "%s/infiniband", base);
	if (mkdir(root, 0700) != 0)
		return -1;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", root, parts[i]);
		if (mkdir(path, 0700) != 0)
			return -1;
	}
	write_text("link_layer", "Ethernet\n");
	write_gid(0, LOCAL "\n", "IB/RoCE v1\n");
	write_gid(1, LOCAL "\n", "RoCE v2\n");
	write_gid(2, MAPPED "\n", "IB/RoCE v1\n");
	write_gid(3, MAPPED "\n", "RoCE v2\n");
	return 0;
}

static int remove_tree(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", base);
	return system(command);
}

static struct verbs_gid gid_of(unsigned index)
{
	return (struct verbs_gid){.root = root, .device = "mlx5_0", .port = 2, .index = index};
}

static void gid__version_2_is_taken_as_it_is(void **state)
{
	struct farlog_error error = {0};
	struct verbs_gid gid = gid_of(3);
	const char *caveat = "";

	(void)state;
	assert_int_equal(verbs_gid_kind(&gid), VERBS_GID_ROCE_V2);
	assert_int_equal(verbs_gid_check(&gid, "verbs://h:1/r", &caveat, &error), FARLOG_OK);
	assert_null(caveat);
}

/* The other GID is that of the same address, and not the first of version 2. */
static void gid__version_1_beside_version_2_is_refused(void **state)
{
	struct farlog_error error = {0};
	struct verbs_gid gid = gid_of(2);
	const char *caveat;

	(void)state;
	assert_int_equal(verbs_gid_kind(&gid), VERBS_GID_ROCE_V1);
	assert_int_equal(verbs_gid_other(&gid), 3);
	assert_int_equal(verbs_gid_check(&gid, "verbs://h:1/r", &caveat, &error), FARLOG_UNSUPPORTED);
	assert_string_equal(error.text,
		"uri \"verbs://h:1/r\": port 2 of RDMA device mlx5_0 takes GID 2, RoCE v1, and has GID 3, RoCE v2, for the "
		"same address; expected \"RoCE v2\" in "
		"/sys/kernel/config/rdma_cm/mlx5_0/ports/2/default_roce_mode");
}

static void gid__version_1_alone_is_taken_with_a_caveat(void **state)
{
	struct farlog_error error = {0};
	struct verbs_gid gid = gid_of(2);
	const char *caveat = NULL;

	(void)state;
	write_text("gid_attrs/types/3", "IB/RoCE v1\n");
	assert_int_equal(verbs_gid_other(&gid), -1);
	assert_int_equal(verbs_gid_check(&gid, "verbs://h:1/r", &caveat, &error), FARLOG_OK);
	assert_string_equal(caveat, "RoCE v1");
}

/* InfiniBand's GIDs have the type of version 1. A GID that is not set cannot be read: what nobody tells is no reason to
 * refuse. */
static void gid__other_link_layers_and_silence(void **state)
{
	struct farlog_error error = {0};
	struct verbs_gid gid = gid_of(2);
	const char *caveat;

	(void)state;
	write_text("gid_attrs/types/2", "");
	assert_int_equal(verbs_gid_kind(&gid), VERBS_GID_UNKNOWN);
	assert_int_equal(verbs_gid_check(&gid, "verbs://h:1/r", &caveat, &error), FARLOG_OK);
	assert_null(caveat);
	write_text("gid_attrs/types/2", "IB/RoCE v1\n");
	write_text("link_layer", "InfiniBand\n");
	assert_int_equal(verbs_gid_kind(&gid), VERBS_GID_NOT_ROCE);
	assert_int_equal(verbs_gid_check(&gid, "verbs://h:1/r", &caveat, &error), FARLOG_OK);
	assert_null(caveat);
	gid.port = 1; /* not there */
	assert_int_equal(verbs_gid_kind(&gid), VERBS_GID_UNKNOWN);
	assert_int_equal(verbs_gid_other(&gid), -1);
}

static void gid__carrier_of_its_interface(void **state)
{
	struct verbs_gid gid = gid_of(3);

	(void)state;
	assert_true(verbs_gid_has_carrier(&gid)); /* of no interface */
	write_text("gid_attrs/ndevs/3", "eth7\n");
	assert_true(verbs_gid_has_carrier(&gid)); /* which does not say, as one that is switched off */
	write_text("../../../../net/eth7/carrier", "0\n");
	assert_false(verbs_gid_has_carrier(&gid));
	write_text("../../../../net/eth7/carrier", "1\n");
	assert_true(verbs_gid_has_carrier(&gid));
}

static void address__ipv4_before_others(void **state)
{
	struct addrinfo second = {.ai_family = AF_INET};
	struct addrinfo first = {.ai_family = AF_INET6, .ai_next = &second};

	(void)state;
	assert_ptr_equal(verbs_address_pick(&first), &second);
	assert_ptr_equal(verbs_address_pick(&second), &second);
	first.ai_next = NULL;
	assert_ptr_equal(verbs_address_pick(&first), &first);
}

static struct ibv_cq cqs[2];

/* tell_of_queue -- as libibverbs tells of a completion queue that overran: SoftRoCE cannot be brought to that. */
static int tell_of_queue(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)context;
	*event = (struct ibv_async_event){.event_type = IBV_EVENT_CQ_ERR, .element.cq = &cqs[0]};
	return 0;
}

static void take_back(struct ibv_async_event *event)
{
	(void)event;
}

/* What an event names is ended, and no other tenant's connection on that device. */
static void event__names_whom_it_ends(void **state)
{
	const struct lib_verbs lib = {.get_async_event = tell_of_queue, .ack_async_event = take_back};
	struct ibv_context context = {0};
	struct verbs_device device = {.lib = &lib, .context = &context};
	struct verbs_device_event of_cq;
	const struct verbs_device_event of_queue_pair = {.type = IBV_EVENT_QP_FATAL, .qp_num = 17};
	const struct verbs_device_event of_port = {.type = IBV_EVENT_PORT_ERR, .port_num = 2};
	const struct verbs_device_event of_device = {.type = IBV_EVENT_DEVICE_FATAL};

	(void)state;
	assert_true(verbs_device_event(&device, &of_cq) && verbs_is_fatal(of_cq.type));
	assert_true(verbs_is_of(&of_cq, 17, &cqs[0], 1));
	assert_false(verbs_is_of(&of_cq, 17, &cqs[1], 1));
	assert_true(verbs_is_of(&of_queue_pair, 17, &cqs[0], 1));
	assert_false(verbs_is_of(&of_queue_pair, 18, &cqs[0], 1));
	assert_true(verbs_is_of(&of_port, 18, &cqs[0], 2));
	assert_false(verbs_is_of(&of_port, 18, &cqs[0], 1));
	assert_true(verbs_is_of(&of_device, 18, &cqs[1], 1));
}

static const struct CMUnitTest verbs_address_tests[] = {
	cmocka_unit_test_setup_teardown(gid__version_2_is_taken_as_it_is, make_tree, remove_tree),
	cmocka_unit_test_setup_teardown(gid__version_1_beside_version_2_is_refused, make_tree, remove_tree),
	cmocka_unit_test_setup_teardown(gid__version_1_alone_is_taken_with_a_caveat, make_tree, remove_tree),
	cmocka_unit_test_setup_teardown(gid__other_link_layers_and_silence, make_tree, remove_tree),
	cmocka_unit_test_setup_teardown(gid__carrier_of_its_interface, make_tree, remove_tree),
	cmocka_unit_test(address__ipv4_before_others),
	cmocka_unit_test(event__names_whom_it_ends),
};
RUN_GROUP(verbs_address, verbs_address_tests)
