/* Calls of library functions: how often and how long; launches and synchronisation by thread, and the rounds that these
 * make. Either one pair of programs serves all functions (see the end), or the helper adds a pair per function, which
 * call `enter` and `leave` with its number, kind and sort. */
#include <uapi/linux/ptrace.h>

enum { OTHER, LAUNCH, SYNC };
enum { PLAIN, GRAPH, IN_CALLS };	/* sorts; from IN_CALLS on those of `in_calls` */

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

BPF_HASH(functions, struct function_key, struct function, 2048);
BPF_HASH(entered, u64, u64, 16384);
BPF_ARRAY(lost, u64, 1);
BPF_TABLE("hash", struct gpu_round_key, struct gpu_round, gpu_rounds, 512);
BPF_HASH(launchers, u32, u32, 1024);	/* by process, the thread that began to launch last */
BPF_HASH(uncounted, u32, u32, 1024);	/* processes whose launches have no probes all the time: each wait ends a round */
BPF_ARRAY(places, u32, 1);	/* [0] where a task has its counts of page faults; 0 where nobody knows */
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

/* The time of a call that is a part of a round, without that of a call within it. */
static __always_inline void note_call(struct library_thread *thread, u32 kind, u64 since, u64 now)
{
	u64 within = thread->call_since >= since ? thread->call_ns : 0;
	if (kind < CALL_KINDS)
		thread->in_calls[kind] += now - since - within;
	if (kind == COLLECTION)
		thread->collecting_ns += now - since;
	thread->call_since = since;
	thread->call_ns = now - since;
}

static __always_inline void note_enter(u64 who, u64 stack, u32 number, u32 kind, u32 sort, u64 now)
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
		note_step(thread);
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
		thread->sync_ns += ns;
		note_call(thread, sort - IN_CALLS, thread->sync_since, now);
		thread->sync_since = thread->sync_stack = 0;
		if (sort < IN_CALLS) {
			thread->round_wait += ns;
			waited(thread, who, now);
		}
	}
	if (kind == OTHER && sort >= IN_CALLS)
		note_call(thread, sort - IN_CALLS, since, now);
}

static __always_inline int enter(struct pt_regs *ctx, u32 number, u32 kind, u32 sort)
{
	u64 who = current_ids(), key = who << 8 | number, now = bpf_ktime_get_ns();
	count_hit(HIT_LIBRARY);
	entered.update(&key, &now);
	if (kind != OTHER)
		note_enter(who, PT_REGS_SP(ctx), number, kind, sort, now);
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
	if (kind != OTHER || sort != PLAIN)
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
/* One pair of programs for all functions: what is attached says which it is for. The helper is newer than bcc's list
 * (Linux 5.15; the number is ABI). */
static u64 (*get_attach_cookie)(void *ctx) = (void *)174;

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
#endif
