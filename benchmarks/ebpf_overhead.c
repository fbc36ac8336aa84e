/* One operation, over and over, in batches. Usage: ebpf_overhead MODE BATCHES; prints ns of CPU time per operation:
 * the smallest, the tenth percentile, the median and the mean of all batches. Waits for a line first. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int to_partner[2], from_partner[2], zero, null;

static double cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *partner(void *unused)
{
	char byte;
	while (read(to_partner[0], &byte, 1) == 1 && write(from_partner[1], &byte, 1) == 1)
		;
	return unused;
}

int cuLaunchKernel(void);

static void operate(const char *mode, int times)
{
	char byte = 1;
	if (!strcmp(mode, "call"))
		for (int i = 0; i < times / 2; i++) {
			if (read(zero, &byte, 1) != 1 || write(null, &byte, 1) != 1)
				exit(3);
		}
	else if (!strcmp(mode, "yield"))
		for (int i = 0; i < times; i++)
			sched_yield();
	else if (!strcmp(mode, "switch"))
		for (int i = 0; i < times; i++) {
			if (write(to_partner[1], &byte, 1) != 1 || read(from_partner[0], &byte, 1) != 1)
				exit(3);
		}
	else
		for (int i = 0; i < times; i++)
			cuLaunchKernel();
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int batches = argc > 2 ? atoi(argv[2]) : 50, times = argc > 3 ? atoi(argv[3]) : 2000;
	double *ns = calloc(batches, sizeof(double));
	double sum = 0;
	char line[8];
	pthread_t thread;
	cpu_set_t last;
	zero = open("/dev/zero", O_RDONLY);
	null = open("/dev/null", O_WRONLY);
	CPU_ZERO(&last);
	CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &last);
	sched_setaffinity(0, sizeof(last), &last);
	if (argc < 2 || pipe(to_partner) || pipe(from_partner) || pthread_create(&thread, NULL, partner, NULL))
		return 3;
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	for (int i = 0; i < batches; i++) {
		double before = cpu_ns();
		operate(argv[1], times);
		ns[i] = (cpu_ns() - before) / times;
		sum += ns[i];
	}
	qsort(ns, batches, sizeof(double), ascending);
	printf("%.1f %.1f %.1f %.1f\n", ns[0], ns[batches / 10], ns[batches / 2], sum / batches);
	fflush(stdout);
	_exit(0);
}
