/* Pairs of threads that hand each other a byte over pipes: four times, then they rest.
 *
 * Usage: switch_pairs PAIRS REST_US; prints "ready" and goes on until its input ends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define HANDS 4

struct pair {
	int there[2], back[2], cpu;
};

static int rest_us;

static void begin(const struct pair *pair)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(pair->cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
	prctl(PR_SET_TIMERSLACK, 1);
}

static void *answer(void *argument)
{
	struct pair *pair = argument;
	char byte;
	begin(pair);
	while (read(pair->there[0], &byte, 1) == 1 && write(pair->back[1], &byte, 1) == 1)
		;
	return NULL;
}

static void *ask(void *argument)
{
	struct pair *pair = argument;
	char byte = 1;
	begin(pair);
	for (int i = 1; write(pair->there[1], &byte, 1) == 1 && read(pair->back[0], &byte, 1) == 1; i++)
		if (rest_us && i % HANDS == 0)
			usleep(rest_us);
	return NULL;
}

int main(int argc, char **argv)
{
	int pairs = argc > 1 ? atoi(argv[1]) : 1, cpus = sysconf(_SC_NPROCESSORS_ONLN);
	char line[8];
	rest_us = argc > 2 ? atoi(argv[2]) : 0;
	for (int i = 0; i < pairs; i++) {
		struct pair *pair = calloc(1, sizeof(*pair));
		pthread_t thread;
		pair->cpu = i % cpus;
		if (pipe(pair->there) || pipe(pair->back) || pthread_create(&thread, NULL, answer, pair)
		    || pthread_create(&thread, NULL, ask, pair))
			return 3;
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		;
	_exit(0);
}
