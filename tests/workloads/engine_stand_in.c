/* libcuda.so.1 for engine_steps.c: calls take the time that the program says, and do nothing. */
#include "launches.h"

static long wait_ns = 4000000, call_ns;

void stand_in_times(long wait, long call)
{
	wait_ns = wait;
	call_ns = call;
}

int cuMemAlloc_v2(void) { spin(call_ns); return 0; }
int cuMemcpyHtoDAsync_v2(void) { spin(call_ns); return 0; }
int cuMemcpyDtoHAsync_v2(void) { spin(5000); return 0; }	/* to pinned memory: it comes back at once */
int cuStreamSynchronize(void) { rest(wait_ns); return 0; }
