/* A decode loop's CUDA calls (see account.h). Usage: cuda_user MODE [SECONDS [STEPS]]; programs.py says what each mode
 * does. STEPS ends the work after so many rounds. */
#include "account.h"
#include <sys/mman.h>

int cuLaunchKernel(void), cuGraphLaunch(void), cuStreamSynchronize(void), cuEventQuery(void *event);
int cudaLaunchKernel(void), cudaGraphLaunch(void), cudaStreamSynchronize(void), cudaEventQuery(void *event);
void stand_in_gpu_works(long ns);
void stand_in_sync(int how, long ns, pthread_barrier_t *where);

enum { ASLEEP, SPINNING, AT_BARRIER };
#define SYNC_NS 8000000
#define LATE_NS 12000000

static int through_runtime, is_late, polls, looks;
static char event;
static long long most_rounds;

NOINLINE void launch(struct worker *worker)
{
	for (int i = 0; i < 8; i++)
		(through_runtime ? cudaLaunchKernel : cuLaunchKernel)();
	(through_runtime ? cudaGraphLaunch : cuGraphLaunch)();
	worker->launches += 9;
}

NOINLINE void synchronise(struct worker *worker)
{
	worker->waits_in_sync = 1;
	begin_wait(worker);
	long long since = worker->since;
	if (polls)
		while ((polls == 2 ? cudaEventQuery : cuEventQuery)(&event))
			;
	else
		(through_runtime ? cudaStreamSynchronize : cuStreamSynchronize)();
	end_wait(worker);
	worker->in_sync += now() - since;
}

static void stop_after(struct worker *worker)
{
	if (most_rounds && worker->rounds + 1 >= most_rounds)
		over = 1;
}

static void decode(struct worker *worker)
{
	spin_here(is_late ? LATE_NS : 2000000);
	launch(worker);
	if (polls || looks)
		stand_in_gpu_works(SYNC_NS);
	for (int i = 0; i < looks; i++) {	/* as an allocator does, which goes on without */
		cuEventQuery(&event);
		spin_here(300000);
	}
	synchronise(worker);
	stop_after(worker);
}

static void launch_only(struct worker *worker) { launch(worker); }

/* The second rank is a process of its own, whose account nobody asks for. */
static void make_ranks(void)
{
	pthread_barrierattr_t shared;
	pthread_barrier_t *barrier = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(barrier, &shared, 2);
	stand_in_sync(AT_BARRIER, 0, barrier);
}

/* The late rank works from the start, and waits at the barrier for the other to begin. */
static void be_late(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	is_late = 1;
	work(add_worker("rank 1", decode));
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	double seconds = argc > 2 ? atof(argv[2]) : 1;
	pid_t child = 0;
	most_rounds = argc > 3 ? atoll(argv[3]) : 0;
	if (!strcmp(mode, "late")) {
		make_ranks();
		child = fork();
		if (!child)
			be_late();
		printf("ready %d\n", child);
	} else {
		puts("ready");
	}
	fflush(stdout);
	if (!wait_for_line())
		return 0;
	if (!strcmp(mode, "asleep") || !strcmp(mode, "spinning"))
		stand_in_sync(!strcmp(mode, "spinning"), SYNC_NS, NULL);
	else if (!strcmp(mode, "runtime"))
		through_runtime = 1;
	else if (!strcmp(mode, "polling") || !strcmp(mode, "polling runtime"))
		polls = 1 + !strcmp(mode, "polling runtime");
	else if (!strcmp(mode, "looking"))
		looks = 5;
	else if (!strcmp(mode, "stuck"))
		stand_in_sync(ASLEEP, 3600000000000L, NULL);
	add_worker(child ? "rank 0" : "worker", strcmp(mode, "launches") ? decode : launch_only);
	work_and_tell(seconds);
}
