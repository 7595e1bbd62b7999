/* target_worker.c -- a thread of a ring whose flush takes as long as a disk: flushes that clients ask for wait there, and not the connections of other
 * rings, for which the transport has one thread.
 *
 * Jobs are done in the order in which they were asked for. An answer is made when its flush has returned, and sent by the transport's thread. A
 * connection that ends leaves its jobs behind: they are done, and nobody is told. A fence waits for them, and so does the end of the ring. */
#include <stdlib.h>

#include "err.h"
#include "mutant.h"
#include "target.h"

struct job {
	struct target_conn *conn; /* NULL: it has ended */
	struct far_request request;
	uint32_t answer;
};

/* Three positions in one row of jobs: sent <= done <= asked <= sent + WORKER_JOB_COUNT. */
struct target_worker {
	struct target_ring *ring;
	pthread_t thread;
	pthread_mutex_t lock; /* of all below; taken with the target's mutex or without */
	pthread_cond_t moved;
	bool is_stopping;
	uint64_t asked;
	uint64_t done;
	uint64_t sent;
	struct job jobs[WORKER_JOB_COUNT];
};

uint32_t target_flush_spans(struct target_ring *ring, const struct far_request *request)
{
	int result = FARLOG_OK;

	for (unsigned i = 0; i < request->span_count && result == FARLOG_OK && !MUTANT(ANSWERED_EARLY); i++)
		result = ring->region->ops->flush(ring->region, request->spans[i].off, request->spans[i].len);
	atomic_bump(&ring->counters.flush_count, 1);
	return (uint32_t)-result;
}

static void *work_loop(void *context)
{
	struct target_worker *worker = context;

	pthread_mutex_lock(&worker->lock);
	while (!worker->is_stopping || worker->done != worker->asked) {
		struct job *job = &worker->jobs[worker->done % WORKER_JOB_COUNT];
		uint32_t answer;

		if (worker->done == worker->asked) {
			pthread_cond_wait(&worker->moved, &worker->lock);
			continue;
		}
		pthread_mutex_unlock(&worker->lock);
		answer = target_flush_spans(worker->ring, &job->request);
		pthread_mutex_lock(&worker->lock);
		job->answer = answer;
		worker->done++;
		if (job->conn != NULL)
			job->conn->ops->wake(job->conn);
		pthread_cond_broadcast(&worker->moved);
	}
	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

int target_worker_start(struct target_ring *ring, struct farlog_error *error)
{
	struct target_worker *worker;
	int failure;

	if (ring->region->contract.flush_method != FARLOG_FLUSH_MSYNC)
		return FARLOG_OK;
	worker = calloc(1, sizeof(*worker));
	if (worker == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "serve ring \"%s\": out of memory", ring->name);
	worker->ring = ring;
	pthread_mutex_init(&worker->lock, NULL);
	pthread_cond_init(&worker->moved, NULL);
	failure = pthread_create(&worker->thread, NULL, work_loop, worker);
	if (failure == 0) {
		ring->worker = worker;
		return FARLOG_OK;
	}
	pthread_cond_destroy(&worker->moved);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
	return error_set(error, FARLOG_IO, failure, "start the thread that flushes ring \"%s\"", ring->name);
}

void target_worker_stop(struct target_ring *ring)
{
	struct target_worker *worker = ring->worker;

	if (worker == NULL)
		return;
	pthread_mutex_lock(&worker->lock);
	worker->is_stopping = true;
	pthread_cond_broadcast(&worker->moved);
	pthread_mutex_unlock(&worker->lock);
	pthread_join(worker->thread, NULL);
	pthread_cond_destroy(&worker->moved);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
	ring->worker = NULL;
}

bool target_worker_take(struct target_conn *conn, const struct far_request *request)
{
	struct target_worker *worker = conn->ring->worker;
	bool has_room;

	pthread_mutex_lock(&worker->lock);
	has_room = worker->asked - worker->sent < WORKER_JOB_COUNT;
	if (has_room) {
		worker->jobs[worker->asked % WORKER_JOB_COUNT] = (struct job){.conn = conn, .request = *request};
		worker->asked++;
		pthread_cond_broadcast(&worker->moved);
	}
	pthread_mutex_unlock(&worker->lock);
	return has_room;
}

void target_worker_answer(struct target_ring *ring)
{
	struct target_worker *worker = ring->worker;

	if (worker == NULL)
		return;
	pthread_mutex_lock(&worker->lock);
	for (; worker->sent < worker->done; worker->sent++) {
		const struct job *job = &worker->jobs[worker->sent % WORKER_JOB_COUNT];

		if (job->conn != NULL)
			job->conn->ops->write_word(job->conn, far_answer_off(job->request.tag), far_answer(job->request.tag, job->answer));
	}
	pthread_mutex_unlock(&worker->lock);
}

void target_worker_part(struct target_conn *conn)
{
	struct target_worker *worker = conn->ring->worker;

	if (worker == NULL)
		return;
	pthread_mutex_lock(&worker->lock);
	for (uint64_t i = worker->sent; i < worker->asked; i++)
		if (worker->jobs[i % WORKER_JOB_COUNT].conn == conn)
			worker->jobs[i % WORKER_JOB_COUNT].conn = NULL;
	pthread_mutex_unlock(&worker->lock);
}

void target_worker_settle(struct target_ring *ring)
{
	struct target_worker *worker = ring->worker;
	uint64_t asked;

	if (worker == NULL)
		return;
	pthread_mutex_lock(&worker->lock);
	asked = worker->asked;
	while (worker->done < asked)
		pthread_cond_wait(&worker->moved, &worker->lock);
	pthread_mutex_unlock(&worker->lock);
}
