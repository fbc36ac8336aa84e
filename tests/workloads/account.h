/* What the workloads share: threads that keep account of what they do, and one that tells it.
 *
 * A program prints "ready", waits for a line, lets its threads work, and prints its account as a line of JSON: after
 * so many seconds, or whenever it is sent a line. It ends with its input. Times in ns of CLOCK_MONOTONIC:
 * {"t": now, "wall": since the start, "threads": {NAME: {"tid", "cpu", "queued", "in_wait", "rounds", "spins",
 * "launches", "in_sync"}}, and those of the first thread, which is the main one, once more beside "wall"}. `in_wait` is
 * without the time spent in the run queue, `cpu` is the thread's own clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define MOST_WORKERS 16

struct worker {
	const char *name;
	void (*round)(struct worker *);
	pthread_t id;
	clockid_t clock;
	int tid, schedstat;
	int waits_in_sync, is_ready;
	long long cpu_at_start, queued_at_start;
	long long since, queued_before;		/* of the wait that it is in; 0 outside of one */
	long long in_wait, in_sync, rounds, spins, launches;
};

static struct worker workers[MOST_WORKERS];
static int worker_count;
static volatile int over;
static long long started_at;

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Time a thread has waited for a CPU: the second number of schedstat. */
static long long queued(struct worker *worker)
{
	char text[128] = "";
	long long ran = 0, waited = 0;
	if (pread(worker->schedstat, text, sizeof(text) - 1, 0) <= 0 || sscanf(text, "%lld %lld", &ran, &waited) != 2)
		return 0;
	return waited;
}

static void begin_wait(struct worker *worker)
{
	worker->queued_before = queued(worker);
	worker->since = now();
}

/* Up to now; the wait goes on where it was not ended. */
static long long waited(struct worker *worker)
{
	long long since = worker->since;
	return since ? now() - since - (queued(worker) - worker->queued_before) : 0;
}

static long long end_wait(struct worker *worker)
{
	long long ns = waited(worker);
	worker->since = 0;
	worker->in_wait += ns;
	return ns;
}

/* Nearly all of it is here: in the first instructions of a function, before its frame stands, a stack that is walked
 * by frame pointers lacks the function that called it. */
NOINLINE void spin_here(long long ns)
{
	volatile int left;
	long long end = now() + ns;
	while (now() < end)
		for (left = 5000; left; left--)
			;
}

static long long cpu_of(struct worker *worker)
{
	struct timespec cpu = {0, 0};
	clock_gettime(worker->clock, &cpu);
	return cpu.tv_sec * 1000000000LL + cpu.tv_nsec;
}

static void begin_work(struct worker *worker)
{
	char path[64];
	worker->tid = syscall(SYS_gettid);
	pthread_getcpuclockid(pthread_self(), &worker->clock);
	prctl(PR_SET_NAME, worker->name);
	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", worker->tid);
	worker->schedstat = open(path, O_RDONLY);
	worker->cpu_at_start = cpu_of(worker);
	worker->queued_at_start = queued(worker);
	__atomic_store_n(&worker->is_ready, 1, __ATOMIC_SEQ_CST);
}

static void go_round(struct worker *worker)
{
	worker->round(worker);
	worker->rounds++;
}

/* Of all but the first, which go on until they wait for the first for ever. */
static void *work(void *argument)
{
	struct worker *worker = argument;
	begin_work(worker);
	for (;;)
		go_round(worker);
	return NULL;
}

static struct worker *add_worker(const char *name, void (*round)(struct worker *))
{
	struct worker *worker = &workers[worker_count++];
	worker->name = name;
	worker->round = round;
	return worker;
}

static void tell_worker(struct worker *worker)
{
	long long in_sync = worker->waits_in_sync && worker->since ? now() - worker->since : 0;
	printf("\"tid\": %d, \"cpu\": %lld, \"queued\": %lld, \"in_wait\": %lld, \"rounds\": %lld, \"spins\": %lld, "
	       "\"launches\": %lld, \"in_sync\": %lld", worker->tid, cpu_of(worker) - worker->cpu_at_start,
	       queued(worker) - worker->queued_at_start, worker->in_wait + waited(worker), worker->rounds, worker->spins,
	       worker->launches, worker->in_sync + in_sync);
}

static void tell(void)
{
	printf("{\"t\": %lld, \"wall\": %lld, ", now(), now() - started_at);
	if (worker_count)
		tell_worker(&workers[0]);
	printf("%s\"threads\": {", worker_count ? ", " : "");
	for (int i = 0; i < worker_count; i++) {
		printf("%s\"%s\": {", i ? ", " : "", workers[i].name);
		tell_worker(&workers[i]);
		printf("}");
	}
	printf("}}\n");
	fflush(stdout);
}

static int wait_for_line(void)
{
	char line[16];
	return fgets(line, sizeof(line), stdin) != NULL;
}

static void *report(void *argument)
{
	double seconds = *(double *)argument;
	struct sched_param before_all_else = {.sched_priority = 3};
	prctl(PR_SET_NAME, "reporter");
	/* Where that is allowed: an account that is told late, or in pieces, is of another time than it says. */
	pthread_setschedparam(pthread_self(), SCHED_RR, &before_all_else);
	if (seconds > 0) {
		usleep(seconds * 1e6);
		over = 1;
	}
	while (wait_for_line())
		tell();
	_exit(0);
}

/* For so many seconds, then tell and wait for the end; for 0, tell whenever asked. The main thread is the first. */
static void __attribute__((noreturn)) work_and_tell(double seconds)
{
	pthread_t reporter;
	started_at = now();
	if (worker_count)
		begin_work(&workers[0]);
	for (int i = 1; i < worker_count; i++) {
		pthread_create(&workers[i].id, NULL, work, &workers[i]);
		while (!__atomic_load_n(&workers[i].is_ready, __ATOMIC_SEQ_CST))
			usleep(100);
	}
	pthread_create(&reporter, NULL, report, &seconds);
	while (worker_count && !over)
		go_round(&workers[0]);
	if (seconds > 0 && worker_count)
		tell();
	for (;;)
		pause();
}
