/* What both stand-ins for libcuda.so.1 have in common: launches that take a known time on the CPU, and do nothing. */
#include <time.h>

static void spin(long ns)
{
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	do
		clock_gettime(CLOCK_MONOTONIC, &b);
	while ((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec < ns);
}

static void rest(long ns)
{
	struct timespec wait = {ns / 1000000000, ns % 1000000000};
	nanosleep(&wait, 0);
}

/* The GPU works until then; whoever asks hears that it is not ready, CUDA_ERROR_NOT_READY. */
static volatile long ready_at;

static long clock_now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000000000L + at.tv_nsec;
}

void stand_in_gpu_works(long ns) { ready_at = clock_now() + ns; }

int cuEventQuery(void *event)
{
	spin(1000);
	return clock_now() < ready_at ? 600 : 0;
}

int cuLaunchKernel(void) { spin(2000); return 0; }
int cuGraphLaunch(void) { spin(5000); return 0; }
