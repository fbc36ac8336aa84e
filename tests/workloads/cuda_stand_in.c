/* libcuda.so.1 as far as its calls are counted: the functions take known times and do nothing.
 *
 * A program says how a synchronisation waits: asleep or spinning, for how long, or until all have come to a barrier. */
#include <pthread.h>

#include "launches.h"

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

int cuStreamSynchronize(void)
{
	if (manner == SPINNING)
		spin(sync_ns);
	else if (manner == AT_BARRIER)
		pthread_barrier_wait(barrier);
	else
		rest(sync_ns);
	return 0;
}
