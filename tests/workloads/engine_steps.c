/* An engine whose steps are known: a millisecond of work, 8 launches of kernels, one of a graph, 4 ms of waiting for the
 * GPU; another thread does the waiting in the mode "apart", and in the mode "polls" an event is asked until it is done. In the mode
 * "many" there are 400 kernels a step, too many to be counted, and more work is 28 graphs more, as of a prompt in pieces. Usage: engine_steps MODE STEPS EVERY: every so many steps one
 * has a cause to be slow, by turns those of `causes`. When all are done it tells which, as ["cause", end in ns]. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int cuLaunchKernel(void), cuGraphLaunch(void), cuStreamSynchronize(void), cuMemAlloc_v2(void), cuMemcpyHtoDAsync_v2(void);
int cuMemcpyDtoHAsync_v2(void);
int cuEventQuery(void *event);
void stand_in_gpu_works(long ns);
void stand_in_times(long wait, long call);

#define MS 1000000L
#define WAIT_NS (4 * MS)
#define PLANTED_NS (9 * MS)
#define BURNERS 3

static const char *causes[] = {"asleep", "lock", "page faults", "allocation", "copy", "run queue", "own code", "more work",
			       "slower GPU", "input"};
enum { ASLEEP, LOCK, FAULTS, ALLOCATION, COPY, QUEUE, OWN_CODE, MORE_WORK, SLOWER, INPUT, CAUSES };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t launched, waited;
static sem_t hold, burn;
static volatile int is_held, is_apart, is_many, is_polling;
static long gpu_ns = WAIT_NS;
static volatile long burn_until;

static long now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000000000L + at.tv_nsec;
}

static void work(long ns)
{
	struct timespec at;
	long until;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	until = at.tv_sec * 1000000000L + at.tv_nsec + ns;
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	while (at.tv_sec * 1000000000L + at.tv_nsec < until);
}

static void sleep_for(long ns)
{
	struct timespec length = {0, ns};
	nanosleep(&length, NULL);
}

static void *holder(void *unused)
{
	for (;;) {
		sem_wait(&hold);
		pthread_mutex_lock(&lock);
		is_held = 1;
		sleep_for(PLANTED_NS);
		is_held = 0;
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

/* Where the engine comes before all else on the machine, they come before the engine. */
static void *burner(void *unused)
{
	struct sched_param first;
	int policy;
	pthread_getschedparam(pthread_self(), &policy, &first);
	first.sched_priority += policy == SCHED_RR;
	pthread_setschedparam(pthread_self(), policy, &first);
	for (;;) {
		sem_wait(&burn);
		while (now() < burn_until)
			;
	}
	return unused;
}

static void *waiter(void *unused)
{
	for (;;) {
		pthread_barrier_wait(&launched);
		cuStreamSynchronize();
		pthread_barrier_wait(&waited);
	}
	return unused;
}

static void touch(size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(memory, size, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < size; at += 4096)
		memory[at] = 1;
	munmap(memory, size);
}

static void plant(int cause)
{
	switch (cause) {
	case ASLEEP:
		sleep_for(PLANTED_NS);
		break;
	case LOCK:
		sem_post(&hold);
		while (!is_held)
			sched_yield();
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
		break;
	case FAULTS:
		touch(64 << 20);
		break;
	case ALLOCATION:
		stand_in_times(WAIT_NS, PLANTED_NS);
		cuMemAlloc_v2();
		break;
	case COPY:
		stand_in_times(WAIT_NS, PLANTED_NS);
		cuMemcpyHtoDAsync_v2();
		break;
	case QUEUE:
		burn_until = now() + 2 * PLANTED_NS;
		for (int i = 0; i < BURNERS; i++)
			sem_post(&burn);
		work(PLANTED_NS / 2);
		burn_until = 0;
		break;
	case OWN_CODE:
		work(PLANTED_NS);
		break;
	case MORE_WORK:
		for (int i = 0; i < (is_many ? 28 : 400); i++)
			is_many ? cuGraphLaunch() : cuLaunchKernel();
		gpu_ns = WAIT_NS + PLANTED_NS;
		break;
	case SLOWER:
		gpu_ns = WAIT_NS + PLANTED_NS;
		break;
	case INPUT:
		poll(NULL, 0, PLANTED_NS / MS);
		break;
	}
}

static void step(int cause)
{
	work(MS);
	plant(cause);
	for (int i = 0; i < (is_many ? 400 : 8); i++)
		cuLaunchKernel();
	cuGraphLaunch();
	stand_in_times(gpu_ns, 0);
	if (is_polling) {
		stand_in_gpu_works(gpu_ns);
		while (cuEventQuery(&gpu_ns))
			;
	} else if (is_apart) {	/* as vLLM: copies to pinned memory are asked for, and another thread waits for them */
		cuMemcpyDtoHAsync_v2();
		cuMemcpyDtoHAsync_v2();
		pthread_barrier_wait(&launched);
		pthread_barrier_wait(&waited);
	} else {
		cuStreamSynchronize();
	}
	gpu_ns = WAIT_NS;
}

/* Burners take time from the engine alone: on the CPU on which it is. */
static void share_one_cpu(void)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
}

int main(int argc, char **argv)
{
	long steps = atol(argv[2]), every = atol(argv[3]);
	pthread_t thread;
	is_apart = !strcmp(argv[1], "apart");
	is_polling = !strcmp(argv[1], "polls");
	is_many = !strcmp(argv[1], "many");
	sem_init(&hold, 0, 0);
	sem_init(&burn, 0, 0);
	pthread_barrier_init(&launched, NULL, 2);
	pthread_barrier_init(&waited, NULL, 2);
	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		return 0;
	pthread_create(&thread, NULL, holder, NULL);
	if (is_apart)
		pthread_create(&thread, NULL, waiter, NULL);
	share_one_cpu();
	for (int i = 0; i < BURNERS; i++)
		pthread_create(&thread, NULL, burner, NULL);
	putchar('[');
	for (long i = 0; i < steps; i++) {
		int is_planted = i % every == every - 1, cause = is_planted ? i / every % CAUSES : -1;
		step(cause);
		if (is_planted)
			printf("%s[\"%s\", %ld]", i < every ? "" : ", ", causes[cause], now());
	}
	puts("]");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return argc - 4;
}
