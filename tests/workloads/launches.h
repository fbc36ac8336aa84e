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

int cuLaunchKernel(void) { spin(2000); return 0; }
int cuGraphLaunch(void) { spin(5000); return 0; }
