/* Programs whose use of the kernel is known, because they keep account of it themselves.
 *
 * Usage: workload MODE [ARGUMENT]. Prints "ready", waits for a line, works, prints its account as "key=value ..."
 * and waits for the end of its input. Times in ns; `blocked` is without the time spent in the run queue. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Time this thread has waited for a CPU: the second number of schedstat. */
static long long queued(void)
{
	static __thread int file;
	char path[64], text[128] = "";
	long long ran = 0, waited = 0;
	if (!file) {
		snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", (int)syscall(SYS_gettid));
		file = open(path, O_RDONLY);
	}
	if (pread(file, text, sizeof(text) - 1, 0) <= 0 || sscanf(text, "%lld %lld", &ran, &waited) != 2)
		exit(3);
	return waited;
}

NOINLINE void spin_here(long long ns)
{
	long long end = now() + ns;
	while (now() < end)
		;
}

/* The C library's functions keep no frame pointer, so that the function that calls them is not in a stack that is
 * walked by frame pointers; the one that calls that is. */
NOINLINE void nap(void)
{
	struct timespec wait = {0, 15000000};
	nanosleep(&wait, NULL);
}

NOINLINE void sleep_here(void) { nap(); }

static int turn;
static volatile int over;

NOINLINE void futex_wait(int value) { syscall(SYS_futex, &turn, FUTEX_WAIT, value, NULL, NULL, 0); }
static void futex_wake(void) { syscall(SYS_futex, &turn, FUTEX_WAKE, 1, NULL, NULL, 0); }

static void hand_over(int to)
{
	__atomic_store_n(&turn, to, __ATOMIC_SEQ_CST);
	futex_wake();
}

NOINLINE void wait_for_turn(int mine)
{
	while (__atomic_load_n(&turn, __ATOMIC_SEQ_CST) != mine && !over)
		futex_wait(!mine);
}

static void *futex_partner(void *unused)
{
	while (!over) {
		wait_for_turn(1);
		spin_here(4000000);
		hand_over(0);
	}
	return unused;
}

static int to_partner[2], from_partner[2];

static void *pipe_partner(void *unused)
{
	char byte;
	while (read(to_partner[0], &byte, 1) == 1) {
		spin_here(4000000);
		if (write(from_partner[1], &byte, 1) != 1)
			break;
	}
	return unused;
}

/* Work and wait by turns for a second; `in_wait` is measured around the wait, less the run queue. */
static void alternate(void (*wait)(void))
{
	long long start = now(), in_wait = 0;
	while (now() < start + 1000000000LL) {
		spin_here(5000000);
		long long queue = queued(), before = now();
		wait();
		in_wait += now() - before;
		in_wait -= queued() - queue;
	}
	printf("wall=%lld in_wait=%lld\n", now() - start, in_wait);
}

static void by_futex(void)
{
	hand_over(1);
	wait_for_turn(0);
}

static void by_pipe(void)
{
	char byte = 1;
	struct iovec room = {&byte, 1};
	/* readv, because waiting for input is read: the two can be told apart. */
	if (write(to_partner[1], &byte, 1) != 1 || readv(from_partner[0], &room, 1) != 1)
		exit(3);
}

static void *some_calls(void *unused)
{
	for (int i = 0; i < 1000; i++)
		syscall(SYS_getpgid, 0);
	return unused;
}

static void count(void)
{
	struct epoll_event event;
	struct pollfd none = {-1, 0, 0};
	struct timespec at_once = {0, 0};
	int epoll = epoll_create1(0), zero = open("/dev/zero", O_RDONLY);
	char byte;
	for (int i = 0; i < 12345; i++)
		syscall(SYS_getppid);
	for (int i = 0; i < 777; i++)
		close(-1);
	for (int i = 0; i < 1000; i++)
		if (pread(zero, &byte, 1, 0) != 1)
			exit(3);
	for (int i = 0; i < 5000; i++)
		sched_yield();
	for (int i = 0; i < 600; i++)
		epoll_wait(epoll, &event, 1, 0);
	for (int i = 0; i < 500; i++)
		ppoll(&none, 1, &at_once, NULL);
	for (int i = 0; i < 3; i++)
		epoll_wait(epoll, &event, 1, 1);
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, some_calls, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	pid_t child = fork();
	if (!child) {
		for (int i = 0; i < 321; i++)
			syscall(SYS_getsid, 0);
		char line[8];
		if (!fgets(line, sizeof(line), stdin))	/* lives until it is told to go */
			_exit(0);
		_exit(0);
	}
	printf("child=%d\n", child);
}

static void on_one_cpu(void)
{
	cpu_set_t first;
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	sched_setaffinity(0, sizeof(first), &first);
	pid_t rival = fork();
	spin_here(1000000000LL);
	if (!rival)
		_exit(0);
	waitpid(rival, NULL, 0);
	printf("queued=%lld\n", queued());
}

static void to_disk(const char *path)
{
	static char block[1 << 20];
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	long long in_wait = 0, start = now();
	for (int i = 0; i < 40; i++) {
		if (pwrite(file, block, sizeof(block), (off_t)i * sizeof(block)) != sizeof(block))
			exit(3);
		long long before = now();
		fsync(file);
		in_wait += now() - before;
	}
	unlink(path);
	printf("wall=%lld in_wait=%lld\n", now() - start, in_wait);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	char line[16];
	pthread_t partner;
	if (pipe(to_partner) || pipe(from_partner))
		return 3;
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	if (!strcmp(mode, "count")) {
		count();
	} else if (!strcmp(mode, "nanosleep")) {
		alternate(sleep_here);
	} else if (!strcmp(mode, "futex")) {
		pthread_create(&partner, NULL, futex_partner, NULL);
		alternate(by_futex);
		over = 1;
		hand_over(1);
		pthread_join(partner, NULL);
	} else if (!strcmp(mode, "pipe")) {
		pthread_create(&partner, NULL, pipe_partner, NULL);
		alternate(by_pipe);
	} else if (!strcmp(mode, "spin")) {
		struct timespec t;
		spin_here(1000000000LL);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
		printf("cpu=%lld\n", t.tv_sec * 1000000000LL + t.tv_nsec);
	} else if (!strcmp(mode, "one-cpu")) {
		on_one_cpu();
	} else if (!strcmp(mode, "disk")) {
		to_disk(argv[2]);
	} else if (!strcmp(mode, "exec")) {
		if (argc > 2)
			execl(argv[0], argv[0], "count", (char *)NULL);
	} else {
		return 2;
	}
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		;
	return 0;
}
