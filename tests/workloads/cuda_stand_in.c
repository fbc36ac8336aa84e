/* libcuda.so.1 as far as its calls are counted: the functions take known times and do nothing.
 *
 * A program says how a synchronisation waits: asleep or spinning, for how long, or until all have come to a barrier. */
#include <pthread.h>
#include <time.h>

enum { ASLEEP, SPINNING, AT_BARRIER };

static int manner = ASLEEP;
static long sync_ns = 2000000;
static pthread_barrier_t *barrier;

void stand_in_sync(int how, long ns, pthread_barrier_t *where)
{
	manner = how;
	sync_ns = ns;
	barrier = where;
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

int cuStreamSynchronize(void)
{
	struct timespec wait = {sync_ns / 1000000000, sync_ns % 1000000000};
	if (manner == SPINNING)
		spin(sync_ns);
	else if (manner == AT_BARRIER)
		pthread_barrier_wait(barrier);
	else
		nanosleep(&wait, 0);
	return 0;
}
