/* target/worker.c -- a thread of a ring for flushes that take long: those of a disk, and those of much memory. What
 * clients ask for waits there, and not the connections of other rings, for which the transport has one thread.
 *
 * Jobs are done in the order in which they were asked for. An answer is made when its flush has returned, and sent by
 * the transport's thread. A connection that ends leaves its jobs behind: one that is under way is done, and nobody is
 * told; the others are left out. A fence waits, and so does the end of the ring. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/err.h"
#include "base/thread.h"
#include "target/target.h"

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
	int failure;

	errno = 0;
	for (unsigned i = 0; i < request->span_count && result == FARLOG_OK; i++)
		result = ring->region->ops->data.flush(ring->region, request->spans[i].off, request->spans[i].len);
	failure = errno != 0 ? errno : EIO;
	atomic_bump(&ring->counters.flush_count, 1);
	atomic_bump(&ring->counters.flush_failed_count, result != FARLOG_OK);
	atomic_store_relaxed(&ring->counters.flush_errno, result != FARLOG_OK ? (uint64_t)failure : 0);
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
		if (job->conn == NULL) {
			worker->done++;
			pthread_cond_broadcast(&worker->moved);
			continue;
		}
		pthread_mutex_unlock(&worker->lock);
		if (worker->ring->test_delay_ns > 0)
			nanosleep(&(struct timespec){(time_t)(worker->ring->test_delay_ns / 1000000000u),
						  (long)(worker->ring->test_delay_ns % 1000000000u)},
				NULL);
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

bool target_is_disk(const struct target_ring *ring)
{
	return ring->region->contract.flush_method == FARLOG_FLUSH_MSYNC;
}

int target_worker_start(struct target_ring *ring, struct farlog_error *error)
{
	struct target_worker *worker;
	int failure;

	worker = calloc(1, sizeof(*worker));
	if (worker == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "serve ring \"%s\": out of memory", ring->name);
	worker->ring = ring;
	pthread_mutex_init(&worker->lock, NULL);
	pthread_cond_init(&worker->moved, NULL);
	failure = thread_start(&worker->thread, work_loop, worker);
	if (failure == 0) {
		__atomic_store_n(&ring->worker, worker, __ATOMIC_RELEASE);
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

bool target_worker_add(struct target_conn *conn, const struct far_request *request)
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

void target_worker_send_answers(struct target_ring *ring)
{
	struct target_worker *worker = ring->worker;

	if (worker == NULL)
		return;
	pthread_mutex_lock(&worker->lock);
	for (; worker->sent < worker->done; worker->sent++) {
		const struct job *job = &worker->jobs[worker->sent % WORKER_JOB_COUNT];

		if (job->conn == NULL)
			continue;
		job->conn->requests.deferred_count--;
		job->conn->ops->write_word(
			job->conn, far_answer_off(job->request.tag), far_answer(job->request.tag, job->answer));
	}
	pthread_mutex_unlock(&worker->lock);
}

void target_worker_cancel(struct target_conn *conn)
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

void target_worker_wait_idle(struct target_ring *ring)
{
	/* the transport's thread may just have started it */
	struct target_worker *worker = __atomic_load_n(&ring->worker, __ATOMIC_ACQUIRE);
	uint64_t asked;

	if (worker == NULL)
		return;
	pthread_mutex_lock(&worker->lock);
	asked = worker->asked;
	while (worker->done < asked)
		pthread_cond_wait(&worker->moved, &worker->lock);
	pthread_mutex_unlock(&worker->lock);
}
