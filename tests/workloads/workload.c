/* Programs whose use of the kernel is known, because they keep account of it themselves (see account.h).
 *
 * Usage: workload MODE [SECONDS [ARGUMENT]]; programs.py says what each mode does. */
#include "account.h"
#include <arpa/inet.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

static long long work_ns = 5000000, wait_ns = 15000000, partner_ns = 4000000;

static void be_faster(int factor)
{
	if (factor > 1) {
		work_ns /= factor;
		wait_ns /= factor;
		partner_ns /= factor;
		prctl(PR_SET_TIMERSLACK, 1);
	}
}

static void pin_to_first_cpu(void)
{
	cpu_set_t first;
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	sched_setaffinity(0, sizeof(first), &first);
}

/* The C library's functions keep no frame pointer, so that the function that calls them is not in a stack that is
 * walked by frame pointers; the one that calls that is. */
NOINLINE void nap(void)
{
	struct timespec wait = {0, wait_ns};
	nanosleep(&wait, NULL);
}

NOINLINE void sleep_here(void) { nap(); }

static void nanosleep_round(struct worker *worker)
{
	spin_here(work_ns);
	begin_wait(worker);
	sleep_here();
	end_wait(worker);
}

static void spin_round(struct worker *worker)
{
	spin_here(work_ns);
	if (over && worker != workers)
		pause();
}

static int turn;

NOINLINE void futex_wait(int value) { syscall(SYS_futex, &turn, FUTEX_WAIT, value, NULL, NULL, 0); }

static void hand_over(int to)
{
	__atomic_store_n(&turn, to, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

NOINLINE void wait_for_turn(int mine)
{
	while (__atomic_load_n(&turn, __ATOMIC_SEQ_CST) != mine)
		futex_wait(!mine);
}

static void futex_round(struct worker *worker)
{
	spin_here(work_ns);
	hand_over(1);
	begin_wait(worker);
	wait_for_turn(0);
	end_wait(worker);
}

static void futex_partner(struct worker *worker)
{
	begin_wait(worker);
	wait_for_turn(1);
	end_wait(worker);
	spin_here(partner_ns);
	hand_over(0);
}

/* Two kinds of wait by turns: `in_wait` is in nanosleep, what it is blocked for besides is on a futex. */
static void mixed_round(struct worker *worker)
{
	nanosleep_round(worker);
	hand_over(1);
	wait_for_turn(0);
}

static int to_partner[2], from_partner[2];

NOINLINE void read_byte(int file)
{
	char byte;
	if (read(file, &byte, 1) != 1)
		_exit(0);
}

NOINLINE void wait_for_byte(int file) { read_byte(file); }

static void send_byte(int file)
{
	if (write(file, "x", 1) != 1)
		_exit(0);
}

/* readv, because the main thread waits for its input in read: the two can be told apart. */
static void pipe_round(struct worker *worker)
{
	char byte;
	struct iovec room = {&byte, 1};
	spin_here(work_ns);
	send_byte(to_partner[1]);
	begin_wait(worker);
	if (readv(from_partner[0], &room, 1) != 1)
		_exit(0);
	end_wait(worker);
}

static void pipe_partner(struct worker *worker)
{
	begin_wait(worker);
	wait_for_byte(to_partner[0]);
	end_wait(worker);
	spin_here(partner_ns);
	send_byte(from_partner[1]);
}

/* to_partner[0] and [1] are the two ends of one connection. */
static void network_round(struct worker *worker)
{
	spin_here(work_ns);
	send_byte(to_partner[0]);
	begin_wait(worker);
	wait_for_byte(to_partner[0]);
	end_wait(worker);
}

static void network_partner(struct worker *worker)
{
	begin_wait(worker);
	wait_for_byte(to_partner[1]);
	end_wait(worker);
	spin_here(partner_ns);
	send_byte(to_partner[1]);
}

static void connect_both(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int door = socket(AF_INET, SOCK_STREAM, 0);
	to_partner[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(door, (struct sockaddr *)&address, size) || listen(door, 1)
	    || getsockname(door, (struct sockaddr *)&address, &size)
	    || connect(to_partner[0], (struct sockaddr *)&address, size))
		exit(3);
	to_partner[1] = accept(door, NULL, NULL);
}

static int epoll, event;

NOINLINE void wait_in_epoll(void)
{
	struct epoll_event found;
	epoll_wait(epoll, &found, 1, -1);
}

NOINLINE void wait_for_event(void) { wait_in_epoll(); }

static void epoll_round(struct worker *worker)
{
	unsigned long long one;
	begin_wait(worker);
	wait_for_event();
	end_wait(worker);
	if (read(event, &one, sizeof(one)) != sizeof(one))
		_exit(0);
	spin_here(work_ns);
}

static void epoll_partner(struct worker *worker)
{
	unsigned long long one = 1;
	nanosleep_round(worker);
	if (write(event, &one, sizeof(one)) != sizeof(one))
		_exit(0);
}

static void make_epoll(void)
{
	struct epoll_event wanted = {.events = EPOLLIN};
	epoll = epoll_create1(0);
	event = eventfd(0, 0);
	epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted);
}

static int disk_file;

NOINLINE void sync_here(void) { fdatasync(disk_file); }

NOINLINE void write_through(void)
{
	static char block[1 << 18] __attribute__((aligned(4096)));
	if (pwrite(disk_file, block, sizeof(block), 0) != sizeof(block))
		exit(3);
	sync_here();
}

static void disk_round(struct worker *worker)
{
	spin_here(work_ns);
	begin_wait(worker);
	write_through();
	end_wait(worker);
}

static void open_disk(const char *path)
{
	disk_file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	if (disk_file < 0)	/* some file systems have no direct access */
		disk_file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	unlink(path);
}

NOINLINE void yield_here(struct worker *worker)
{
	sched_yield();
	worker->spins++;
}

static void yield_round(struct worker *worker) { yield_here(worker); }

NOINLINE void poll_here(struct worker *worker)
{
	struct pollfd none = {-1, 0, 0};
	struct timespec at_once = {0, 0};
	ppoll(&none, 1, &at_once, NULL);
	worker->spins++;
}

static void poll_round(struct worker *worker) { poll_here(worker); }

static void *some_calls(void *unused)
{
	for (int i = 0; i < 1000; i++)
		syscall(SYS_getpgid, 0);
	return unused;
}

/* Calls that there are not, each made for the first time by two CPUs at once. */
#define FIRST_OF_NONE 600
#define CALLS_OF_NONE 300
static int arrived[CALLS_OF_NONE];

static void *rush(void *cpu)
{
	cpu_set_t own;
	CPU_ZERO(&own);
	CPU_SET((long)cpu, &own);
	sched_setaffinity(0, sizeof(own), &own);
	for (int i = 0; i < CALLS_OF_NONE; i++) {
		__atomic_add_fetch(&arrived[i], 1, __ATOMIC_SEQ_CST);
		while (__atomic_load_n(&arrived[i], __ATOMIC_SEQ_CST) < 2)
			;
		syscall(FIRST_OF_NONE + i);
	}
	return NULL;
}

static void rush_both(void)
{
	pthread_t threads[2];
	for (long i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, rush, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	puts("{\"calls\": 2}");
	fflush(stdout);
	while (wait_for_line())
		;
	_exit(0);
}

static void count(void)
{
	struct epoll_event found;
	struct pollfd none = {-1, 0, 0};
	struct timespec at_once = {0, 0};
	int epoll = epoll_create1(0), zero = open("/dev/zero", O_RDONLY);
	char byte;
	for (int i = 0; i < 12345; i++)
		syscall(SYS_getppid);
	for (int i = 0; i < 777; i++)
		close(-1);
	for (int i = 0; i < 1000; i++)
		if (pread(zero, &byte, 1, 0) != 1)
			exit(3);
	for (int i = 0; i < 5000; i++)
		sched_yield();
	for (int i = 0; i < 600; i++)
		epoll_wait(epoll, &found, 1, 0);
	for (int i = 0; i < 500; i++)
		ppoll(&none, 1, &at_once, NULL);
	for (int i = 0; i < 3; i++)
		epoll_wait(epoll, &found, 1, 1);
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, some_calls, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	pid_t child = fork();
	if (!child) {
		for (int i = 0; i < 321; i++)
			syscall(SYS_getsid, 0);
		wait_for_line();	/* lives until it is told to go */
		_exit(0);
	}
	printf("{\"child\": %d}\n", child);
	fflush(stdout);
	while (wait_for_line())
		;
	_exit(0);
}

NOINLINE void doze(void)
{
	struct timespec wait = {0, 500000000};
	nanosleep(&wait, NULL);
}

/* Some calls of different kinds, as threads of a pool make them. */
static void *doze_for_ever(void *unused)
{
	struct pollfd none = {-1, 0, 0};
	for (;;) {
		doze();
		syscall(SYS_getpgid, 0);
		syscall(SYS_getppid);
		poll(&none, 1, 0);
		close(-1);
	}
	return unused;
}

/* Small stacks, and no account: there is one number to know. */
static void start_crowd(int number)
{
	pthread_attr_t small;
	pthread_t thread;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (int i = 0; i < number; i++)
		if (pthread_create(&thread, &small, doze_for_ever, NULL))
			exit(3);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "", *argument = argc > 3 ? argv[3] : "";
	double seconds = argc > 2 ? atof(argv[2]) : 1;
	if (pipe(to_partner) || pipe(from_partner))
		return 3;
	puts("ready");
	fflush(stdout);
	if (!wait_for_line())
		return 0;
	if (!strcmp(mode, "count"))
		count();
	if (!strcmp(mode, "rush"))
		rush_both();
	if (!strcmp(mode, "exec"))
		execl(argv[0], argv[0], "count", (char *)NULL);
	if (strcmp(mode, "disk") && strcmp(mode, "starve") && strcmp(mode, "crowd"))
		be_faster(atoi(argument));
	if (!strcmp(mode, "mixed")) {
		add_worker("worker", mixed_round);
		add_worker("partner", futex_partner);
	} else if (!strcmp(mode, "nanosleep")) {
		add_worker("worker", nanosleep_round);
	} else if (!strcmp(mode, "spin")) {
		add_worker("worker", spin_round);
	} else if (!strcmp(mode, "futex")) {
		add_worker("worker", futex_round);
		add_worker("partner", futex_partner);
	} else if (!strcmp(mode, "pipe")) {
		add_worker("worker", pipe_round);
		add_worker("partner", pipe_partner);
	} else if (!strcmp(mode, "network")) {
		connect_both();
		add_worker("worker", network_round);
		add_worker("partner", network_partner);
	} else if (!strcmp(mode, "epoll")) {
		make_epoll();
		add_worker("worker", epoll_round);
		add_worker("partner", epoll_partner);
	} else if (!strcmp(mode, "disk")) {
		open_disk(argument);
		add_worker("worker", disk_round);
	} else if (!strcmp(mode, "yield")) {
		add_worker("worker", yield_round);
	} else if (!strcmp(mode, "poll")) {
		add_worker("worker", poll_round);
	} else if (!strcmp(mode, "starve")) {
		static const char *const names[] = {"worker", "rival 1", "rival 2", "rival 3", "rival 4"};
		pin_to_first_cpu();
		for (int i = 0; i < atoi(argument) && i < 5; i++)
			add_worker(names[i], spin_round);
	} else if (!strcmp(mode, "crowd")) {
		start_crowd(atoi(argument));
	} else {
		return 2;
	}
	work_and_tell(seconds);
}
