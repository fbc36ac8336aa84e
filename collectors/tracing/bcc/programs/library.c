/* Calls of library functions: how often and how long; launches and synchronisation by thread. Either one pair of
 * programs serves all functions (see the end), or the helper adds a pair per function, which call `enter` and `leave`
 * with its number and kind. */
#include <uapi/linux/ptrace.h>

enum { OTHER, LAUNCH, SYNC };

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

BPF_HASH(functions, struct function_key, struct function, 2048);
BPF_HASH(entered, u64, u64, 16384);
BPF_ARRAY(lost, u64, 1);
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

static __always_inline void note_enter(u64 who, u64 stack, u32 number, u32 kind, u64 now)
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
	}
	if (kind == SYNC && !is_within(stack, number, thread->sync_stack, thread->sync_function)) {
		thread->sync_since = now;
		thread->sync_stack = stack;
		thread->sync_function = number;
		note_step(thread);
	}
}

static __always_inline void note_leave(u64 who, u64 stack, u32 number, u32 kind, u64 now)
{
	u32 tid = who;
	struct library_thread *thread = library_threads.lookup(&tid);
	if (!thread)
		return;
	if (kind == LAUNCH && number == thread->launch_function && stack >= thread->launch_stack + RETURN_POPS)
		thread->launch_stack = 0;
	if (kind == SYNC && number == thread->sync_function && stack >= thread->sync_stack + RETURN_POPS
	    && thread->sync_since) {
		thread->sync_ns += now - thread->sync_since;
		thread->sync_since = thread->sync_stack = 0;
	}
}

static __always_inline int enter(struct pt_regs *ctx, u32 number, u32 kind)
{
	u64 who = current_ids(), key = who << 8 | number, now = bpf_ktime_get_ns();
	count_hit(HIT_LIBRARY);
	entered.update(&key, &now);
	if (kind != OTHER)
		note_enter(who, PT_REGS_SP(ctx), number, kind, now);
	return 0;
}

static __always_inline int leave(struct pt_regs *ctx, u32 number, u32 kind)
{
	u64 who = current_ids(), key = who << 8 | number, now = bpf_ktime_get_ns();
	u64 *since = entered.lookup(&key);
	if (!since)
		return 0;
	u64 ns = now - *since;
	entered.delete(&key);
	if (kind != OTHER)
		note_leave(who, PT_REGS_SP(ctx), number, kind, now);
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
	return enter(ctx, cookie & 0xff, cookie >> 8);
}

int leave_any(struct pt_regs *ctx)
{
	u64 cookie = get_attach_cookie(ctx);
	return leave(ctx, cookie & 0xff, cookie >> 8);
}
#endif
