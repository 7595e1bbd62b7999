/* verbs_way.c -- what packets are like on the way: their path MTU, and the traffic class that each end asked for. */
#include <dlfcn.h>
#include <string.h>

#include "base/clock.h"
#include "verbs_counts.h"
#include "verbs_pair.h"

/* query -- what the device has for a queue pair. */
static struct ibv_qp_attr query(struct ibv_qp *qp)
{
	int (*ibv_query_qp_found)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
	struct ibv_qp_init_attr init = {0};
	struct ibv_qp_attr attr = {0};
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	*(void **)&ibv_query_qp_found = dlsym(library, "ibv_query_qp");
	CHECK(ibv_query_qp_found != NULL && ibv_query_qp_found(qp, &attr, IBV_QP_AV | IBV_QP_PATH_MTU, &init) == 0);
	dlclose(library);
	return attr;
}

static struct far_link *open_by(const char *options, const struct farlog_grant *granted)
{
	char text[256];
	struct far_hello hello = pair_hello("mine", granted);
	struct far_refusal refusal;
	struct far_link *link = NULL;
	struct uri uri;

	pair_far_uri("mine", options, text, sizeof(text));
	CHECK_OK(uri_parse(text, &uri, &error));
	CHECK_OK(far_verbs.open(text, &uri, &link, &error));
	CHECK_OK(link->ops->connect(link, &hello, &refusal, 5000000000u, &error));
	link->method = FARLOG_FLUSH_RDMA_READ;
	return link;
}

/* ends_have -- client and target by `options` and the target's own: these traffic classes, at the device, and `text` in
 * the contract. */
static void ends_have(
	const char *options, unsigned of_target, uint8_t client_class, uint8_t target_class, const char *text)
{
	struct verbs_listener *listener = pair_target->listener;
	struct farlog_grant granted =
		pair_grant("mine", FARLOG_GRANT_WRITER, (uint32_t)pair_counters("mine").admitted_count + 1);
	struct region_span span = {LINE, 64};
	struct farlog_contract contract;
	struct ibv_qp_attr near;
	struct ibv_qp_attr far;
	struct far_link *link;
	char mtu[32];

	pair_condition = options;
	listener->tos = (uint16_t)of_target;
	link = open_by(options, &granted);
	near = query(((struct verbs_link *)link)->queue.qp);
	far = query(listener->conns->queue.qp);
	CHECK(near.ah_attr.grh.traffic_class == client_class);
	CHECK(far.ah_attr.grh.traffic_class == target_class);
	CHECK(pair_persist(link, &span, 1, 1) == FARLOG_OK);
	far_fill_contract(link, &far_verbs, &contract);
	printf("verbs: way %s: %u and %u, %s\n", options, near.ah_attr.grh.traffic_class, far.ah_attr.grh.traffic_class,
		contract.probe);
	snprintf(mtu, sizeof(mtu), "path MTU %u", 128u << near.path_mtu);
	CHECK(near.path_mtu == far.path_mtu && near.path_mtu >= IBV_MTU_256);
	CHECK(strstr(contract.probe, mtu) != NULL);
	CHECK(text != NULL ? strstr(contract.probe, text) != NULL : strstr(contract.probe, "traffic class") == NULL);
	pair_close_link(link);
	listener->tos = 0;
}

static void listener_takes_it(const char *address)
{
	struct farlog_error error = {0};
	farlog_target *target = NULL;
	char uri[128];

	pair_condition = "traffic class of a listener";
	snprintf(uri, sizeof(uri), "verbs://%s:0?tos=0xb8", address);
	CHECK(farlog_target_open(uri, &target, &error) == FARLOG_OK);
	CHECK(target != NULL && ((struct verbs_listener *)target->listener)->tos == 0xb8 + 1);
	CHECK(target != NULL && strchr(farlog_target_uri(target), '?') == NULL);
	farlog_target_close(target);
	snprintf(uri, sizeof(uri), "verbs://%s:0?tos=256", address);
	CHECK(farlog_target_open(uri, &target, &error) == FARLOG_INVALID && strstr(error.text, "tos=\"256\"") != NULL);
}

/* answers_come -- `laps` flushes by the target's processor to a client that sleeps: each is answered, with or without
 * an event at the client. */
static void answers_come(bool has_immediate, unsigned laps)
{
	struct verbs_listener *listener = pair_target->listener;
	struct farlog_grant granted =
		pair_grant("mine", FARLOG_GRANT_WRITER, (uint32_t)pair_counters("mine").admitted_count + 1);
	struct region_span span = {LINE, 64};
	struct far_link *link = open_by("wait=block", &granted);
	uint64_t until_ns = clock_after_ns(WAIT_NS);
	struct far_link_sleep nap;

	pair_condition = has_immediate ? "answers with an event" : "answers without an event";
	link->method = FARLOG_FLUSH_TARGET_CPU;
	CHECK(pair_persist(link, &span, 1, 1) == FARLOG_OK); /* the target has taken in by now what it was asked for */
	CHECK(listener->conns->wants_events && listener->conns->queue.has_immediate);
	listener->conns->queue.has_immediate = has_immediate; /* as of a device that has none */
	for (unsigned i = 2; i <= laps; i++) {
		CHECK(link->ops->persist(link, &span, 1, i) == FARLOG_OK);
		while (link->done.persist_tag != i && clock_monotonic_ns() < until_ns)
			if (link->ops->poll(link) == FARLOG_OK && far_sleep_prepare(link, &nap, WAIT_NS))
				(void)far_sleep_run(&nap);
		CHECK(link->done.persist_tag == i);
	}
	CHECK(link->ops->poll(link) == FARLOG_OK);
	CHECK(verbs_counts_of(&verbs_link_of(link)->queue)->event_count == (has_immediate ? laps : 1));
	pair_close_link(link);
}

void test_way(const char *address)
{
	ends_have("", 0, 0, 0, NULL);
	ends_have("tos=0x68", 0, 0x68, 0x68, "traffic class 104"); /* a target that was not told follows its client */
	ends_have("tos=104", 0xb8 + 1, 0x68, 0xb8, "traffic class 104");
	ends_have("wait=block", 0xb8 + 1, 0, 0xb8, NULL);
	listener_takes_it(address);
	answers_come(true, 40);
	answers_come(false, 5);
}
