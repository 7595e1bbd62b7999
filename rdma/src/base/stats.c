/* base/stats.c -- counter files and quantiles. */
#include "base/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

#define DIRECTORY_DEFAULT "/dev/shm/farlog"
#define FILE_MAGIC 0x315254434C524146ull /* "FARLCTR1" */
#define PATH_LEN 512

/* The file: magic and size first, so that a reader of another build refuses it instead of misreading it. */
struct counter_file {
	uint64_t magic;
	uint64_t counters_len;
	uint64_t member_count; /* 0: a ring alone */
	uint64_t reserved[5];
	struct farlog_counters counters;
	struct farlog_member_counters members[FARLOG_MEMBER_COUNT_MAX];
};

#define COUNT_FIELD(name, kind, help) +1
_Static_assert(
	sizeof(struct farlog_counters) == 8 * (0 FARLOG_COUNTER_TABLE(COUNT_FIELD) + 3 + FARLOG_HISTOGRAM_BUCKET_COUNT),
	"every counter is one word");

static void counters_path(const char *directory, const uint8_t ring_uuid[16], char path[PATH_LEN])
{
	int used = snprintf(path, PATH_LEN - 48, "%s/", directory != NULL ? directory : DIRECTORY_DEFAULT);

	for (int i = 0; i < 16; i++)
		used += snprintf(path + used, 3, "%02x", ring_uuid[i]);
	snprintf(path + used, 10, ".counters");
}

static int map_private(struct farlog_counters **counters, struct farlog_error *error)
{
	struct counter_file *file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (file == MAP_FAILED)
		return error_set(error, FARLOG_NO_MEMORY, errno, "map counters");
	*counters = &file->counters;
	return FARLOG_OK;
}

/* Made beside and renamed into place: a reader that has the last writer's file mapped keeps it whole. */
static int make_file(const char *path, struct counter_file **file, int *lock_fd)
{
	char fresh[PATH_LEN + 24];
	void *map = MAP_FAILED;
	int fd;

	snprintf(fresh, sizeof(fresh), "%s.%ld", path, (long)getpid());
	unlink(fresh); /* the directory is open to all users: never follow or reuse what lies there under our name */
	fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return errno;
	if (posix_fallocate(fd, 0, sizeof(**file)) == 0)
		map = mmap(NULL, sizeof(**file), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (map != MAP_FAILED)
		/* a cleaner sees by this lock that the writer lives, in whichever container */
		(void)flock(fd, LOCK_SH | LOCK_NB);
	if (map == MAP_FAILED || rename(fresh, path) != 0) {
		int failure = errno ? errno : ENOSPC;

		close(fd);
		if (map != MAP_FAILED)
			munmap(map, sizeof(**file));
		unlink(fresh);
		return failure;
	}
	*file = map;
	*lock_fd = fd;
	(*file)->counters_len = sizeof((*file)->counters);
	/* the writer stores it when it is open, and until then 0 would be a perfect clock */
	(*file)->counters.clock_err_ns = UINT32_MAX;
	atomic_store_release(&(*file)->magic, FILE_MAGIC);
	return 0;
}

/* ensure_directory -- false: the counters' directory is another user's, or a link: he could take the files away, or
 * have them written elsewhere. The super-user's is trusted, and one that its owner and group alone may change. */
static bool ensure_directory(const char *directory)
{
	struct stat info;

	if (mkdir(directory, 01777) == 0)
		(void)chmod(directory, 01777); /* past the umask: writers of all users */
	if (lstat(directory, &info) != 0)
		return true; /* making the file says why */
	return S_ISDIR(info.st_mode) && (info.st_uid == 0 || info.st_uid == geteuid() || (info.st_mode & 02) == 0);
}

int stats_open(const char *directory, const uint8_t ring_uuid[16], struct farlog_counters **counters, int *lock_fd,
	struct farlog_error *error)
{
	char path[PATH_LEN];
	struct counter_file *file = NULL;
	int failure;

	*lock_fd = -1;
	if (directory != NULL && directory[0] == '\0')
		return map_private(counters, error);
	if (!ensure_directory(directory != NULL ? directory : DIRECTORY_DEFAULT))
		return map_private(counters, error);
	counters_path(directory, ring_uuid, path);
	failure = make_file(path, &file, lock_fd);
	/* Another user wrote to this ring before, and the directory is sticky. Counters must not cost anybody his log. */
	if (failure == EPERM || failure == EACCES)
		return map_private(counters, error);
	if (failure != 0)
		return error_set(error, FARLOG_IO, failure,
			"make counters file \"%s\" (an empty counters directory keeps them private)", path);
	*counters = &file->counters;
	return FARLOG_OK;
}

void stats_link(const char *directory, const uint8_t ring_uuid[16], const uint8_t also_uuid[16])
{
	char path[PATH_LEN];
	char also[PATH_LEN];

	if (directory != NULL && directory[0] == '\0')
		return;
	counters_path(directory, ring_uuid, path);
	counters_path(directory, also_uuid, also);
	(void)!link(path, also);
}

static struct counter_file *file_of(struct farlog_counters *counters)
{
	return (struct counter_file *)((char *)counters - offsetof(struct counter_file, counters));
}

struct farlog_member_counters *stats_members(struct farlog_counters *counters, unsigned count)
{
	struct counter_file *file = file_of(counters);

	atomic_store_release(&file->member_count, count);
	return file->members;
}

void stats_close(struct farlog_counters *counters, int lock_fd)
{
	if (counters == NULL)
		return;
	munmap(file_of(counters), sizeof(struct counter_file));
	if (lock_fd >= 0)
		close(lock_fd);
}

static int read_all(int fd, const char *path, struct counter_file *file, struct farlog_error *error)
{
	for (size_t done = 0; done < sizeof(*file);) {
		ssize_t got = pread(fd, (char *)file + done, sizeof(*file) - done, (off_t)done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_set(error, FARLOG_IO, errno, "read counters \"%s\"", path);
		if (got == 0)
			return error_set(error, FARLOG_CORRUPT, 0, "counters \"%s\": shorter than %zu bytes", path, sizeof(*file));
		done += (size_t)got;
	}
	if (file->magic != FILE_MAGIC || file->counters_len != sizeof(file->counters))
		return error_set(error, FARLOG_CORRUPT, 0, "counters \"%s\" are of another version", path);
	return FARLOG_OK;
}

/* read_file -- Another user may have made the file. So it is not waited for (a FIFO), not followed (a link) and not
 * mapped: the owner of a mapped file can cut it off, and SIGBUS ends the process that reads it. */
static int read_file(
	const char *directory, const uint8_t ring_uuid[16], struct counter_file *file, struct farlog_error *error)
{
	char path[PATH_LEN];
	struct stat info;
	int result;
	int fd;

	counters_path(directory, ring_uuid, path);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return error_set(error, errno == ENOENT ? FARLOG_NOT_FOUND : FARLOG_IO, errno, "open counters \"%s\"", path);
	if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
		result = read_all(fd, path, file, error);
	else
		result = error_set(error, FARLOG_CORRUPT, 0, "counters \"%s\": expected a regular file", path);
	close(fd);
	return result;
}

int farlog_counters_read(
	const char *directory, const uint8_t ring_uuid[16], struct farlog_counters *counters, struct farlog_error *error)
{
	struct counter_file file;
	int result = read_file(directory, ring_uuid, &file, error);

	if (result == FARLOG_OK)
		*counters = file.counters;
	return result;
}

int farlog_member_counters_read(const char *directory, const uint8_t ring_uuid[16],
	struct farlog_member_counters *members, unsigned count_max, unsigned *count, struct farlog_error *error)
{
	struct counter_file file;
	int result = read_file(directory, ring_uuid, &file, error);

	*count = 0;
	if (result != FARLOG_OK)
		return result;
	*count = file.member_count <= FARLOG_MEMBER_COUNT_MAX ? (unsigned)file.member_count : 0;
	memcpy(members, file.members, (*count < count_max ? *count : count_max) * sizeof(*members));
	return FARLOG_OK;
}

uint64_t farlog_histogram_bucket_ns(unsigned bucket)
{
	unsigned octave = bucket / 32 + 4;

	if (bucket < 64)
		return bucket;
	return (((uint64_t)(bucket % 32) + 33) << (octave - 5)) - 1;
}

uint64_t farlog_histogram_quantile_ns(const struct farlog_counters *counters, double quantile)
{
	uint64_t total = 0;
	uint64_t seen = 0;
	uint64_t rank;

	for (unsigned i = 0; i < FARLOG_HISTOGRAM_BUCKET_COUNT; i++)
		total += counters->latency_bucket[i];
	if (quantile >= 1.0)
		return counters->latency_max_ns; /* also of what is still waited for */
	if (total == 0)
		return 0;
	rank = (uint64_t)(quantile * (double)total);
	for (unsigned i = 0; i < FARLOG_HISTOGRAM_BUCKET_COUNT; i++) {
		seen += counters->latency_bucket[i];
		if (seen > rank)
			return farlog_histogram_bucket_ns(i) < counters->latency_max_ns ? farlog_histogram_bucket_ns(i) :
																			  counters->latency_max_ns;
	}
	return counters->latency_max_ns;
}
