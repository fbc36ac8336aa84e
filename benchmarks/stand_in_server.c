/* A stand-in for an inference engine short of CPU, for launch_cost.py: steps of launches and work one after the other, and many threads.
 *
 * Usage: stand_in_server LAUNCHES WORK_US ACTIVE ASLEEP [PERIOD_US]: launches of kernels and microseconds of work a
 * step, threads that wake every PERIOD_US (10,000), threads that sleep for good. Prints its counters every tenth of a second:
 * monotonic ns, steps, CPU ns of the engine's thread. The engine's CPU time a step is what a monitor adds to. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

int cuLaunchKernel(void);
int cuStreamSynchronize(void);

static long clock_ns(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void work(long us)
{
	long end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + us * 1000;
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		for (volatile int i = 0; i < 2000; i++)
			;
}

static volatile long rounds_per_us;

static void fixed_work(long us)
{
	for (volatile long i = 0; i < us * rounds_per_us; i++)
		;
}

static void calibrate(void)
{
	rounds_per_us = 1;
	long start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	fixed_work(1000000);
	long ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
	rounds_per_us = 1000000000L / (ns > 0 ? ns : 1);
}

static long period_us = 10000;

static void *active(void *unused)
{
	prctl(PR_SET_NAME, "active");
	for (;;) {
		work(20);
		usleep(period_us);
	}
	return unused;
}

static void *asleep(void *unused)
{
	prctl(PR_SET_NAME, "asleep");
	for (;;)
		pause();
	return unused;
}

static volatile long steps, engine_ns;

static void *engine(void *argument)
{
	long *numbers = argument;
	prctl(PR_SET_NAME, "EngineCore");
	calibrate();
	for (;;) {
		for (long i = 0; i < numbers[0]; i++)
			cuLaunchKernel();
		fixed_work(numbers[1]);
		cuStreamSynchronize();
		steps++;
		engine_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long numbers[4] = {300, 3000, 8, 150};
	for (int i = 1; i < argc && i <= 4; i++)
		numbers[i - 1] = atol(argv[i]);
	if (argc > 5)
		period_us = atol(argv[5]);
	pthread_t thread;
	for (long i = 0; i < numbers[2]; i++)
		pthread_create(&thread, NULL, active, NULL);
	for (long i = 0; i < numbers[3]; i++)
		pthread_create(&thread, NULL, asleep, NULL);
	pthread_create(&thread, NULL, engine, numbers);
	for (;;) {
		printf("%ld %ld %ld\n", clock_ns(CLOCK_MONOTONIC), steps, engine_ns);
		fflush(stdout);
		usleep(100000);
	}
}
