/* Calls of library functions: how often and how long; launches and synchronisation by thread, and the rounds that these
 * make. One pair of programs serves all functions where the kernel tells a program what it is attached to (the cookie:
 * number, kind and sort of the function); else a pair is loaded for each, with that number in it. */
#include <uapi/linux/ptrace.h>

enum { OTHER, LAUNCH, SYNC, QUERY };
enum { PLAIN, GRAPH, READS, IN_CALLS };	/* sorts; from IN_CALLS on those of `in_calls` */

/* What a return takes off the stack. */
#if defined(__x86_64__)
#define RETURN_POPS 8
#else
#define RETURN_POPS 0
#endif

struct function_key {
	u32 tgid;
	u32 function;
};

struct function {
	u64 count;
	u64 ns;
	u64 slots[SLOTS];
};

/* A thread launched work, and it, or another one that launches none, has waited for the GPU until `end`. */
struct gpu_round_key {
	u64 end;
	u32 tid;
	u32 tgid;
};

struct gpu_round {
	u64 start;		/* the end of the one before */
	u64 wait;
	u64 off_cpu[OFF_CPU_KINDS];
	u64 in_calls[CALL_KINDS];
	u64 faults;		/* where another thread waited, up to the last launch; may be NOT_KNOWN */
	u32 launches;
	u32 graphs;
};

#define NOT_KNOWN (~0ULL)
#define SELDOM 8

/* Queries that are asked again and again until the GPU has finished are a wait for it, from the first to the last. What
 * a program does between two of them is no other work where it is as short as this: PyTorch's allocators look at an event
 * with each tensor they make, and what makes and uses one takes longer. */
#define NOT_READY 600	/* CUDA_ERROR_NOT_READY, cudaErrorNotReady (since CUDA 10.1) */
#define POLL_GAP_NS 10000
#define FEWEST_POLLS 3
#define LOST_CPU_NS 200000000	/* a loop that others took the CPU from goes on within this time, of which nobody knows the rest */

BPF_HASH(functions, struct function_key, struct function, 2048);
BPF_HASH(entered, u64, u64, 16384);
BPF_ARRAY(lost, u64, 1);
BPF_TABLE("hash", struct gpu_round_key, struct gpu_round, gpu_rounds, 512);
BPF_HASH(launchers, u32, u32, 1024);	/* by process, the thread that began to launch last */
BPF_HASH(uncounted, u32, u32, 1024);	/* processes whose launches have no probes all the time: each wait ends a round */
/* Where a task has its counts of page faults, and of how often it lost the CPU; 0 where nobody knows. */
BPF_ARRAY(places, u32, 2);
BPF_ARRAY(attachments, u32, 1);	/* changes as probes on launches come and go; odd while they are all there for a moment */

static __always_inline struct function *function_of(u32 tgid, u32 number)
{
	struct function_key key = {.tgid = tgid, .function = number};
	struct function *function = functions.lookup(&key);
	if (function)
		return function;
	struct function fresh = {};
	function = functions.lookup_or_try_init(&key, &fresh);
	if (!function)
		lost.increment(0);
	return function;
}

static __always_inline struct library_thread *thread_of(u64 who)
{
	u32 tid = who;
	struct library_thread *thread = library_threads.lookup(&tid);
	if (!thread) {
		struct library_thread fresh = {.tgid = who >> 32};
		thread = library_threads.lookup_or_try_init(&tid, &fresh);
		if (!thread)
			lost.increment(0);
	}
	set_mark_of(tid, IN_LIBRARIES);
	return thread;
}

/* The runtime calls the driver: a call within a call of the same kind is not another one. It is one where the stack
 * has grown since, or by a jump where the function differs. What began at a lower address has ended unseen. */
static __always_inline bool is_within(u64 stack, u32 number, u64 outer_stack, u32 outer_number)
{
	return outer_stack && (stack < outer_stack || (stack == outer_stack && number != outer_number));
}

/* What is launched between two synchronising calls does not depend on how long that takes. */
static __always_inline void note_step(struct library_thread *thread)
{
	u32 place = 0, *attachment = attachments.lookup(&place);
	thread->syncs++;
	if (!attachment)
		return;
	if ((*attachment & 1) && thread->step_attachment == *attachment) {
		thread->steps++;
		thread->step_launches += thread->launches - thread->launches_before;
	}
	thread->step_attachment = *attachment;
	thread->launches_before = thread->launches;
}

/* Page faults of the current thread so far; its minor and its major ones lie side by side. */
static __always_inline u64 faults_so_far(void)
{
	u64 counts[2] = {};
	u32 first = 0, *place = places.lookup(&first);
	if (!place || !*place)
		return NOT_KNOWN;
	bpf_probe_read_kernel(counts, sizeof(counts), (void *)bpf_get_current_task() + *place);
	return counts[0] + counts[1];
}

/* How often the current thread has lost the CPU to others, sched_yield included; 0 where nobody knows. */
static __always_inline u64 switches_so_far(void)
{
	u64 count = 0;
	u32 second = 1, *place = places.lookup(&second);
	if (place && *place)
		bpf_probe_read_kernel(&count, sizeof(count), (void *)bpf_get_current_task() + *place);
	return count;
}

static __always_inline void begin_round(struct library_thread *thread, u64 faults, u64 now)
{
	thread->round_start = now;
	thread->round_wait = thread->woken_late = 0;
	for (int i = 0; i < OFF_CPU_KINDS; i++)
		thread->off_cpu[i] = 0;
	for (int i = 0; i < CALL_KINDS; i++)
		thread->in_calls[i] = 0;
	thread->round_faults = faults;
	thread->launch_faults = 0;
	thread->round_launches = thread->round_graphs = 0;
}

static __always_inline void end_round(struct library_thread *thread, struct gpu_round_key *key, u64 wait, u64 faults)
{
	struct gpu_round round = {.start = thread->round_start, .wait = wait, .faults = NOT_KNOWN,
		.launches = thread->round_launches, .graphs = thread->round_graphs};
	for (int i = 0; i < OFF_CPU_KINDS; i++)
		round.off_cpu[i] = thread->off_cpu[i];
	for (int i = 0; i < CALL_KINDS; i++)
		round.in_calls[i] = thread->in_calls[i];
	if (faults != NOT_KNOWN && faults >= thread->round_faults)	/* which may be NOT_KNOWN too: the most */
		round.faults = faults - thread->round_faults;
	if (round.start)
		gpu_rounds.update(key, &round);	/* without room for it, it is seen to be missing: the next begins later */
	begin_round(thread, faults, key->end);
}

/* A wait for the GPU is over. It ends the round of the thread that waited; of one that launches nothing itself, as vLLM's
 * that copies outputs, that of the thread which launches and does not wait. Where launches are not counted all the time,
 * each wait ends a round, and who launches is known from when they were. */
static __always_inline void waited(struct library_thread *thread, u64 who, u64 now)
{
	u32 tgid = who >> 32, *other = launchers.lookup(&tgid);
	struct gpu_round_key key = {.end = now, .tid = who, .tgid = tgid};
	u64 wait = thread->round_wait > thread->woken_late ? thread->round_wait - thread->woken_late : 0;
	bool each = uncounted.lookup(&tgid);
	if (thread->round_launches || (each && (thread->launches || !other))) {
		thread->waits_itself = SELDOM;
		end_round(thread, &key, wait, faults_so_far());
		return;
	}
	if (!other || *other == key.tid)
		return;
	key.tid = *other;
	struct library_thread *launcher = library_threads.lookup(&key.tid);
	thread->round_wait = thread->woken_late = 0;
	if (!launcher || !(launcher->round_launches || each))
		return;
	if (launcher->waits_itself)
		launcher->waits_itself--;
	else
		end_round(launcher, &key, wait, launcher->launch_faults ? launcher->launch_faults : NOT_KNOWN);
}

/* A copy to the host that comes back this soon was only asked for: its memory is pinned, and another call waits for it. */
#define READ_WAIT_NS 100000

enum { POLLS_ANEW, POLLS_ON, POLLS_AGAIN, POLLS_OTHER };

/* How a query goes with those before it: AGAIN after a gap, OTHER where it is about something else in between. */
static __always_inline u32 course_of(struct library_thread *thread, u64 since)
{
	bool is_same = thread->poll_handle == thread->query_handle;
	if (thread->polls && since < thread->poll_last + POLL_GAP_NS)
		return is_same ? POLLS_ON : POLLS_OTHER;
	return thread->polls >= FEWEST_POLLS && is_same && since < thread->poll_last + LOST_CPU_NS ? POLLS_AGAIN : POLLS_ANEW;
}

/* Whether a query only repeats what was asked before. It costs nobody anything: whoever asks would have asked again. */
static __always_inline bool is_repeated(struct library_thread *thread, u32 result, u64 since)
{
	u32 course = course_of(thread, since);
	return result == NOT_READY && (course == POLLS_ON || course == POLLS_AGAIN);
}

/* A query has been answered; for how long it was asked until the GPU had finished, 0 of one that waited for nothing. */
static __always_inline u64 queried(struct library_thread *thread, u64 who, u32 result, u64 since, u64 now)
{
	u32 course = course_of(thread, since);
	if (course == POLLS_OTHER)
		return 0;
	u64 switches = switches_so_far();
	if (course == POLLS_AGAIN) {
		if (switches != thread->poll_switches)	/* it lost the CPU: of a call that spins that time counts too, but not of a round */
			thread->sync_ns += since - thread->poll_last;
		thread->poll_last = since;
	}
	thread->poll_switches = switches;
	if (course == POLLS_ANEW) {
		thread->polls = 0;
		thread->poll_since = since;
		thread->poll_handle = thread->query_handle;
	}
	bool is_ready = result != NOT_READY, is_wait = thread->polls + !is_ready >= FEWEST_POLLS;
	u64 ns = 0;
	if (is_wait)
		ns = now - (thread->polls >= FEWEST_POLLS ? thread->poll_last : thread->poll_since);
	else if (is_ready && thread->polls && thread->polls_itself)
		ns = now - thread->poll_since;
	thread->sync_ns += ns;
	thread->round_wait += ns;
	thread->poll_last = now;
	if (!is_ready) {
		thread->polls++;
		return 0;
	}
	thread->polls = 0;
	if (is_wait)
		thread->polls_itself = SELDOM;
	else if (!thread->polls_itself)
		return 0;
	else
		thread->polls_itself--;
	note_step(thread);
	waited(thread, who, now);
	return now - thread->poll_since;
}

/* The time of a call that is a part of a round, without that of a call within it. */
static __always_inline void note_call(struct library_thread *thread, u32 kind, u64 since, u64 now)
{
	u64 within = thread->call_since >= since ? thread->call_ns : 0;
	if (kind < CALL_KINDS)
		thread->in_calls[kind] += now - since - within;
	if (kind == COLLECTION) {
		thread->collecting_ns += now - since;
		thread->collections++;
	}
	thread->call_since = since;
	thread->call_ns = now - since;
}

static __always_inline void note_enter(u64 who, u64 stack, u64 handle, u32 number, u32 kind, u32 sort, u64 now)
{
	struct library_thread *thread = thread_of(who);
	if (!thread)
		return;
	if (kind == LAUNCH) {
		/* A launch whose probes came off before its end would have all that follow pass for parts of it. */
		u32 place = 0, *attachment = attachments.lookup(&place);
		if (attachment && thread->attachment != *attachment) {
			thread->attachment = *attachment;
			thread->launch_stack = 0;
		}
	}
	if (kind == LAUNCH && !is_within(stack, number, thread->launch_stack, thread->launch_function)) {
		thread->launches++;
		thread->polls = 0;
		thread->launch_stack = stack;
		thread->launch_function = number;
		if (!thread->round_launches++) {
			u32 tgid = who >> 32, tid = who;
			launchers.update(&tgid, &tid);
		}
		if (sort == GRAPH)
			thread->round_graphs++;
		if (!thread->waits_itself)	/* whoever waits for it cannot ask for its faults then */
			thread->launch_faults = faults_so_far();
	}
	if (kind == SYNC && !is_within(stack, number, thread->sync_stack, thread->sync_function)) {
		thread->sync_since = now;
		thread->sync_stack = stack;
		thread->sync_function = number;
		thread->polls = 0;
		if (sort != READS)	/* of which nobody knows before its end whether it waits */
			note_step(thread);
	}
	if (kind == QUERY && !is_within(stack, number, thread->query_stack, thread->query_function)) {
		thread->query_stack = stack;
		thread->query_function = number;
		thread->query_handle = handle;
	}
}

static __always_inline void note_leave(u64 who, u64 stack, u32 number, u32 kind, u32 sort, u64 since, u64 now)
{
	u32 tid = who;
	struct library_thread *thread = library_threads.lookup(&tid);
	if (!thread)
		return;
	if (kind == LAUNCH && number == thread->launch_function && stack >= thread->launch_stack + RETURN_POPS)
		thread->launch_stack = 0;
	if (kind == SYNC && number == thread->sync_function && stack >= thread->sync_stack + RETURN_POPS
	    && thread->sync_since) {
		u64 ns = now - thread->sync_since;
		bool is_wait = sort != READS || ns >= READ_WAIT_NS;
		if (is_wait)
			thread->sync_ns += ns;
		note_call(thread, sort - IN_CALLS, thread->sync_since, now);
		thread->sync_since = thread->sync_stack = 0;
		if (is_wait && sort == READS)
			note_step(thread);
		if (is_wait && sort < IN_CALLS) {
			thread->round_wait += ns;
			waited(thread, who, now);
		}
	}
	if (kind == OTHER && sort >= IN_CALLS)
		note_call(thread, sort - IN_CALLS, since, now);
}

/* A query ends: whether it counts as a call. Of those that are asked until the GPU has finished the first and the last do,
 * the last one with the time of all. */
static __always_inline bool note_answer(struct pt_regs *ctx, u64 who, u32 number, u64 since, u64 now, u64 *ns)
{
	u32 tid = who, result = PT_REGS_RC(ctx);
	struct library_thread *thread = library_threads.lookup(&tid);
	if (!thread)
		return true;
	bool counts = !is_repeated(thread, result, since);
	count_hit(counts ? HIT_LIBRARY : HIT_POLL);
	if (number == thread->query_function && PT_REGS_SP(ctx) >= thread->query_stack + RETURN_POPS) {
		u64 asked_ns = queried(thread, who, result, since, now);
		thread->query_stack = 0;
		if (asked_ns)
			*ns = asked_ns;
	}
	return counts;
}

static __always_inline int enter(struct pt_regs *ctx, u32 number, u32 kind, u32 sort)
{
	u64 who = current_ids(), key = who << 8 | number, now = bpf_ktime_get_ns();
	if (kind != QUERY)	/* which may turn out to cost nothing */
		count_hit(HIT_LIBRARY);
	entered.update(&key, &now);
	if (kind != OTHER)
		note_enter(who, PT_REGS_SP(ctx), PT_REGS_PARM1(ctx), number, kind, sort, now);
	else if (sort == IN_CALLS + COLLECTION)
		thread_of(who);	/* it may never launch anything: what collects is told of all threads */
	return 0;
}

static __always_inline int leave(struct pt_regs *ctx, u32 number, u32 kind, u32 sort)
{
	u64 who = current_ids(), key = who << 8 | number, now = bpf_ktime_get_ns();
	u64 *since = entered.lookup(&key);
	if (!since)
		return 0;
	u64 ns = now - *since;
	entered.delete(&key);
	if (kind == QUERY) {
		if (!note_answer(ctx, who, number, now - ns, now, &ns))
			return 0;
	} else if (kind != OTHER || sort != PLAIN)
		note_leave(who, PT_REGS_SP(ctx), number, kind, sort, now - ns, now);
	struct function *function = function_of(who >> 32, number);
	if (!function)
		return 0;
	/* Several threads may launch work at once. */
	__sync_fetch_and_add(&function->count, 1);
	__sync_fetch_and_add(&function->ns, ns);
	u32 slot = slot_of(ns);
	if (slot < SLOTS)
		__sync_fetch_and_add(&function->slots[slot], 1);
	return 0;
}

#if WITH_COOKIES
/* The helper is newer than bcc's list (Linux 5.15; the number is ABI). */
static u64 (*get_attach_cookie)(void *ctx) = (void *)174;
#else
/* In words that no compiler works out beforehand: another number takes its place. */
#define get_attach_cookie(ctx) ({ u64 cookie; asm volatile("%0 = %1 ll" : "=r"(cookie) : "i"(COOKIE)); cookie; })
#endif

int enter_any(struct pt_regs *ctx)
{
	u64 cookie = get_attach_cookie(ctx);
	return enter(ctx, cookie & 0xff, cookie >> 8 & 0xf, cookie >> 12);
}

int leave_any(struct pt_regs *ctx)
{
	u64 cookie = get_attach_cookie(ctx);
	return leave(ctx, cookie & 0xff, cookie >> 8 & 0xf, cookie >> 12);
}
