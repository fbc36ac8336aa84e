/* A decode loop's CUDA calls. Usage: cuda_user STEPS; prints "ready", waits for a line, steps, prints "done". */
#include <stdio.h>
#include <stdlib.h>

int cuLaunchKernel(void), cuGraphLaunch(void), cuStreamSynchronize(void);

int main(int argc, char **argv)
{
	char line[8];
	int steps = argc > 1 ? atoi(argv[1]) : 1;
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	for (int i = 0; i < steps; i++) {
		for (int k = 0; k < 8; k++)
			cuLaunchKernel();
		cuGraphLaunch();
		if (steps < 100000)
			cuStreamSynchronize();
	}
	puts("done=1");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		;
	return 0;
}
