/* libcuda.so.1 for engine_steps.c: calls take the time that the program says, and do nothing. */
#include <time.h>

static long wait_ns = 4000000, call_ns;

void stand_in_times(long wait, long call)
{
	wait_ns = wait;
	call_ns = call;
}

static void spin(long ns)
{
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	do
		clock_gettime(CLOCK_MONOTONIC, &b);
	while ((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec < ns);
}

int cuLaunchKernel(void) { spin(2000); return 0; }
int cuGraphLaunch(void) { spin(5000); return 0; }
int cuMemAlloc_v2(void) { spin(call_ns); return 0; }
int cuMemcpyHtoDAsync_v2(void) { spin(call_ns); return 0; }

int cuStreamSynchronize(void)
{
	struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
	nanosleep(&wait, 0);
	return 0;
}
