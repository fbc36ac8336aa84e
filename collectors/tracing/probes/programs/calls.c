/* System calls: how often, how many failed, how long.
 *
 * Raw tracepoints: cheaper than plain ones, and what they return filters nothing. Counters are kept per process, or
 * thousands of threads would be read every second; spins are kept per thread, or threads that spin would fight for
 * one cache line millions of times a second. */

#define ETIMEDOUT 110
#define NO_CALL 0xffffffff
#define WITHOUT_WAIT 0x8000	/* set in the id of a poll that was told not to wait */

struct call_key {
	u32 tgid;
	u32 id;
};

struct call {
	u64 count;
	u64 errors;
	u64 ns;
	u64 switch_timeouts;	/* that returned ETIMEDOUT after 4.5 to 7 ms: CPython asks for the GIL again after 5 ms */
	u64 slots[SLOTS];
};

struct spin_key {
	u32 tid;
	u32 id;
};

struct spin {
	u64 count;
	u32 tgid;
	u32 unused;
};

struct started {
	u64 at;
	u32 id;
	u32 unused;
};

BPF_HASH(calls, struct call_key, struct call, 16384);
BPF_HASH(spins, struct spin_key, struct spin, 16384);
BPF_HASH(started, u32, struct started, 32768);
BPF_ARRAY(settings, u32, 1);	/* [0] whether calls are counted only */
BPF_ARRAY(lost, u64, 1);

static __always_inline struct call *call_of(u32 tgid, u32 id)
{
	struct call_key key = {.tgid = tgid, .id = id};
	struct call *call = calls.lookup(&key);
	if (call)
		return call;
	struct call fresh = {};
	call = calls.lookup_or_try_init(&key, &fresh);
	if (!call)
		lost.increment(0);
	return call;
}

static __always_inline void count_spin(u32 tgid, u32 tid, u32 id)
{
	struct spin_key key = {.tid = tid, .id = id};
	struct spin fresh = {.tgid = tgid}, *spin = spins.lookup_or_try_init(&key, &fresh);
	if (spin)
		spin->count++;
	else
		lost.increment(0);
}

/* A spinning thread makes millions of these a second, and how long they take says nothing. */
static __always_inline bool is_spin(struct bpf_raw_tracepoint_args *ctx, u32 *id)
{
	u64 timeout = 1;
	struct pt_regs *regs = (struct pt_regs *)ctx->args[0];
	switch (*id) {
	case NR_SCHED_YIELD:
		return true;
#ifdef NR_POLL
	case NR_POLL:
		bpf_probe_read_kernel(&timeout, sizeof(timeout), &REG_ARGUMENT_3(regs));
		timeout = (u32)timeout;
		break;
#endif
#ifdef NR_EPOLL_WAIT
	case NR_EPOLL_WAIT:
#endif
	case NR_EPOLL_PWAIT:
		bpf_probe_read_kernel(&timeout, sizeof(timeout), &REG_ARGUMENT_4(regs));
		timeout = (u32)timeout;
		break;
	case NR_PPOLL: {
		u64 address = 0;
		struct { u64 s, ns; } wait;
		wait.s = wait.ns = 1;
		bpf_probe_read_kernel(&address, sizeof(address), &REG_ARGUMENT_3(regs));
		if (address && !bpf_probe_read_user(&wait, sizeof(wait), (void *)address))
			timeout = wait.s | wait.ns;
		break;
	}
	default:
		return false;
	}
	if (timeout)
		return false;
	*id |= WITHOUT_WAIT;
	return true;
}

/* A uprobe's way into the kernel, which is no call of the program's. The cost is counted with the uprobe. */
static __always_inline bool is_trap(u32 id)
{
#ifdef NR_URETPROBE
	return id == NR_URETPROBE || id == NR_UPROBE;
#else
	return false;
#endif
}

int on_call(struct bpf_raw_tracepoint_args *ctx)
{
	u64 who = current_ids();
	u32 tgid = who >> 32, tid = who, id = ctx->args[1];
	if (!is_target(tgid)) {
		count_hit(HIT_FOREIGN_CALL);
		return 1;
	}
	if (is_trap(id))
		return 1;
	count_hit(HIT_CALL);
	u32 place = 0, *count_only = settings.lookup(&place);
	bool is_spin_call = is_spin(ctx, &id);
	if (is_spin_call || (count_only && *count_only)) {
		if (is_spin_call) {
			count_spin(tgid, tid, id);
		} else {
			struct call *call = call_of(tgid, id);
			if (call)
				__sync_fetch_and_add(&call->count, 1);
		}
		/* No start is kept: its return is passed over below. */
		struct started *before = started.lookup(&tid);
		if (before)
			before->id = NO_CALL;
		return 1;
	}
	struct started *start = started.lookup(&tid);
	if (start) {
		start->at = bpf_ktime_get_ns();
		start->id = id;
	} else {
		struct started fresh = {.at = bpf_ktime_get_ns(), .id = id};
		if (started.update(&tid, &fresh))
			lost.increment(0);
	}
	return 1;
}

int on_return(struct bpf_raw_tracepoint_args *ctx)
{
	u64 who = current_ids();
	u32 tgid = who >> 32, tid = who;
	if (!is_marked(tgid))
		return 1;
	struct started *start = started.lookup(&tid);
	if (!start || start->id == NO_CALL)
		return 1;
	u64 ns = bpf_ktime_get_ns() - start->at;
	long result = ctx->args[1];
	struct call *call = call_of(tgid, start->id);
	start->id = NO_CALL;
	if (!call)
		return 1;
	__sync_fetch_and_add(&call->count, 1);
	__sync_fetch_and_add(&call->ns, ns);
	u32 slot = slot_of(ns);
	if (slot < SLOTS)
		__sync_fetch_and_add(&call->slots[slot], 1);
	if (result < 0 && result >= -4095) {
		__sync_fetch_and_add(&call->errors, 1);
		if (result == -ETIMEDOUT && ns > 4500000 && ns < 7000000)
			__sync_fetch_and_add(&call->switch_timeouts, 1);
	}
	return 1;
}
