/* Threads on and off the CPU: why they left it, how long they slept and how long they queued to come back.
 *
 * Plain tracepoints, because they hand out thread ids and not kernel structures; all return 1 (see lifecycle.c). */

#define ENDED 0x30	/* EXIT_DEAD | EXIT_ZOMBIE */
#define NO_CALL 0xffff
#define NO_STACK -1
#define CALLS 512
#define UNINTERRUPTIBLE 2
#define IN_SYNC 0x100	/* set in the state of a sleep within a synchronising call of a library */

struct thread {
	u64 since;		/* when it came on the CPU, or left it */
	u64 runnable;		/* when it was woken or preempted; 0 while it sleeps or runs */
	u64 on_ns;
	u64 queue_ns;
	u64 asleep_ns;
	u32 tgid;
	u32 state;		/* RUNS, or the state it left the CPU in */
	u32 call;		/* the system call it sleeps in */
	u32 descriptor;		/* that call's first argument */
	u32 waker;
	u32 voluntary;
	u32 involuntary;
	s32 user_stack;
	s32 kernel_stack;
	u32 epoch;		/* of the stack ids: they are void after a clearing of the stacks */
	u32 slots[SLOTS];	/* of waits in the run queue */
};
#define RUNS 0xffffffff

struct wait_key {
	u32 tid;
	u16 call;
	u16 state;
};

struct wait {
	u64 ns;
	u64 count;
	u32 tgid;
	u32 descriptor;
};

struct wake_key {
	u32 tid;
	u32 waker;
};

struct stack_key {
	u32 tid;
	u16 call;
	u16 state;
	s32 user_stack;
	s32 kernel_stack;
	u32 tgid;
	u32 epoch;
};

BPF_HASH(threads, u32, struct thread, 16384);
BPF_HASH(waits, struct wait_key, struct wait, 16384);
BPF_HASH(wakes, struct wake_key, u64, 8192);
BPF_HASH(stack_times, struct stack_key, u64, 8192);
BPF_STACK_TRACE(stacks, 8192);
BPF_ARRAY(settings, u32, 3);	/* [0] one stack in so many, 0 for none; [1] the epoch of the stack ids */
BPF_ARRAY(lost, u64, 1);
BPF_ARRAY(call_kinds, u32, CALLS);	/* what a sleep in a system call is of a round; 0 is ASLEEP, all else is one more */

#if TASK_REGISTERS
/* Newer than bcc's list of helpers (Linux 5.11 and 5.15; the numbers are ABI). */
static void *(*get_current_task_btf)(void) = (void *)158;
static void *(*task_pt_regs)(void *task) = (void *)175;

/* The system call that the current thread is in, and that call's first argument. NO_CALL also where an interrupt
 * came from the thread's own code: it leaves -1 where the number is. */
static __always_inline u32 current_call(u32 *descriptor)
{
	struct pt_regs *regs = task_pt_regs(get_current_task_btf());
#if defined(__x86_64__)
	struct { u64 di, orig_ax; } saved;	/* they lie side by side in pt_regs */
	saved.di = 0;
	saved.orig_ax = NO_CALL;
	bpf_probe_read_kernel(&saved, sizeof(saved), &regs->di);
	*descriptor = saved.di;
	return saved.orig_ax < NO_CALL ? saved.orig_ax : NO_CALL;
#elif defined(__aarch64__)
	s32 number = -1;
	bpf_probe_read_kernel(&number, sizeof(number), &regs->syscallno);
	bpf_probe_read_kernel(descriptor, sizeof(u32), &regs->orig_x0);
	return number >= 0 && number < NO_CALL ? number : NO_CALL;
#endif
}
#else
static __always_inline u32 current_call(u32 *descriptor)
{
	return NO_CALL;
}
#endif

static __always_inline u32 in_sync(u32 tid)
{
	struct library_thread *thread = has_mark(tid, IN_LIBRARIES) ? library_threads.lookup(&tid) : 0;
	return thread && thread->sync_since ? IN_SYNC : 0;
}

static __always_inline void note_stack(void *args, struct thread *thread)
{
	u32 place = 0;
	u32 *every = settings.lookup(&place);
	thread->user_stack = thread->kernel_stack = NO_STACK;
	thread->epoch = 0;
	/* By chance and not by turns: a thread that sleeps in two places by turns would show only one of them. */
	if (!every || !*every || (*every > 1 && bpf_get_prandom_u32() % *every))
		return;
	place = 1;
	u32 *epoch = settings.lookup(&place);
	if (!epoch)
		return;
	u64 since = bpf_ktime_get_ns();	/* it depends on how deep they are: see governor.py */
	thread->epoch = *epoch;
	thread->user_stack = stacks.get_stackid(args, BPF_F_USER_STACK);
	thread->kernel_stack = stacks.get_stackid(args, 0);
	count_hit(HIT_STACK);
	add_hits(STACK_NS, bpf_ktime_get_ns() - since);
}

static __always_inline void add_wait(u32 tid, struct thread *thread, u64 ns)
{
	struct wait_key key = {.tid = tid, .call = thread->call, .state = thread->state};
	struct wait fresh = {.tgid = thread->tgid}, *wait = waits.lookup_or_try_init(&key, &fresh);
	if (!wait) {
		lost.increment(0);
		return;
	}
	wait->ns += ns;
	wait->count++;
	wait->descriptor = thread->descriptor;
}

/* What is known of the current thread, if it is one of the processes looked at: mostly one look-up tells both. */
static __always_inline struct thread *leaving(u32 tgid, u32 tid, u32 state)
{
	struct thread *thread = is_marked(tgid) ? threads.lookup(&tid) : 0;
	if (thread && thread->tgid == tgid)
		return thread;
	if (!is_target(tgid)) {
		count_hit(HIT_FOREIGN_SWITCH);
		return 0;
	}
	if (state & ENDED)	/* the helper may have dropped it already: it must not come back */
		return 0;
	struct thread fresh = {.tgid = tgid, .state = RUNS};
	threads.update(&tid, &fresh);	/* in place of one that ended under the same id, if there is any */
	set_mark(tid);
	thread = threads.lookup(&tid);
	if (!thread)
		lost.increment(0);
	return thread;
}

static __always_inline void leave(void *args, struct thread *thread, u32 tid, u32 state, u64 now)
{
	if (state & ENDED) {
		thread->since = 0;
		return;
	}
	count_hit(HIT_SWITCH);
	know_current(tid);
	/* It slept when the probes came, and its wake-up was not known for its own (see own_id). */
	if (thread->state != RUNS && thread->state && !thread->runnable && thread->since)
		add_wait(tid, thread, now - thread->since);
	if (thread->state == RUNS && thread->since)
		thread->on_ns += now - thread->since;
	thread->since = now;
	thread->state = state;
	thread->runnable = state ? 0 : now;
	if (!state) {
		thread->involuntary++;
		return;
	}
	thread->voluntary++;
	thread->state |= in_sync(tid);
	thread->call = current_call(&thread->descriptor);
	note_stack(args, thread);
}

static __always_inline void add_stack(u32 tid, struct thread *thread, u64 ns)
{
	struct stack_key key = {.tid = tid, .call = thread->call, .state = thread->state,
		.user_stack = thread->user_stack, .kernel_stack = thread->kernel_stack,
		.tgid = thread->tgid, .epoch = thread->epoch};
	u64 none = 0, *total = stack_times.lookup_or_try_init(&key, &none);
	if (total)
		*total += ns;
	else
		lost.increment(0);
}

static __always_inline void add_wake(u32 tid, u32 waker)
{
	struct wake_key key = {.tid = tid, .waker = waker};
	u64 none = 0, *count = wakes.lookup_or_try_init(&key, &none);
	if (count)
		(*count)++;
	else
		lost.increment(0);
}

/* A round of the GPU's work goes on, and this thread is part of it (library.c). */
static __always_inline void note_round(u32 tid, struct thread *thread, u64 asleep, u64 queued)
{
	struct library_thread *library = has_mark(tid, IN_LIBRARIES) ? library_threads.lookup(&tid) : 0;
	if (!library)
		return;
	library->off_cpu[QUEUED] += queued;
	if (library->sync_since)
		library->woken_late += queued;
	if (!thread->state || thread->state & IN_SYNC)
		return;
	u32 call = thread->call, *kind = call_kinds.lookup(&call);
	/* Not to be woken by a signal: on a disk, whatever it reads. */
	u64 place = kind && *kind && !(thread->state & UNINTERRUPTIBLE) ? *kind - 1 : ASLEEP;
	asm volatile("%0 &= 3" : "+r"(place));	/* in words that every verifier understands: it is below OFF_CPU_KINDS */
	library->off_cpu[place] += asleep;
}

static __always_inline void enter(u32 tid, u64 now)
{
	if (!is_marked(tid))
		return;
	struct thread *thread = threads.lookup(&tid);
	if (!thread)
		return;
	if (thread->state == RUNS || !thread->since) {
		thread->since = now;
		return;
	}
	u64 woken = thread->runnable ? thread->runnable : now;
	if (thread->state) {
		u64 ns = woken - thread->since;
		thread->asleep_ns += ns;
		add_wait(tid, thread, ns);
		if (thread->epoch)
			add_stack(tid, thread, ns);
		add_wake(tid, thread->waker);
	}
	u64 queued = now - woken;
	thread->queue_ns += queued;
	note_round(tid, thread, woken - thread->since, queued);
	u32 slot = slot_of(queued);
	if (slot < SLOTS)
		thread->slots[slot]++;
	thread->state = RUNS;
	thread->runnable = 0;
	thread->epoch = 0;
	thread->since = now;
}

/* Who wakes: 0 for a timer or an interrupt. One that comes while a thread runs its own code is told from that thread
 * by its registers; one that comes while it is in a system call is not, where it seems to be that thread. */
static __always_inline u32 waker(void)
{
	u32 machine_tid = bpf_get_current_pid_tgid(), tid = current_ids(), unused;
	if (!machine_tid || (TASK_REGISTERS && current_call(&unused) == NO_CALL))
		return 0;
	return tid ? tid : OUTSIDE;
}

/* The thread that leaves is still the current one. */
static __always_inline void switched(void *args, u32 state, u32 next)
{
	u64 who = current_ids();
	struct thread *thread = leaving(who >> 32, who, state);
	if (!thread && !is_marked(next))
		return;
	u64 now = bpf_ktime_get_ns();
	if (thread)
		leave(args, thread, who, state, now);
	enter(next, now);
}

static __always_inline void waking(u32 tid)
{
	if (!is_marked(tid))
		return;
	struct thread *thread = threads.lookup(&tid);
	/* Whatever its state: it may be on its way to sleep, with the switch not seen yet. */
	if (thread)
		thread->waker = waker();
}

static __always_inline void woken(u32 tid)
{
	if (!is_marked(tid))
		return;
	struct thread *thread = threads.lookup(&tid);
	if (thread && thread->state != RUNS && thread->state && !thread->runnable)
		thread->runnable = bpf_ktime_get_ns();
}

#if RAW
/* The fields of a task that a raw tracepoint hands out: where they lie differs between kernels. */
static __always_inline u32 id_of(u64 task)
{
	u32 place = 2, *offset = settings.lookup(&place), machine_id = 0;
	if (offset)
		bpf_probe_read_kernel(&machine_id, sizeof(machine_id), (void *)task + *offset);
	return own_id(machine_id);
}

/* (preempt, prev, next, prev_state), from Linux 6.0 on. */
int on_switch(struct bpf_raw_tracepoint_args *ctx)
{
	switched(ctx, ctx->args[0] ? 0 : ctx->args[3] & 0xff, id_of(ctx->args[2]));
	return 1;
}

int on_waking(struct bpf_raw_tracepoint_args *ctx)
{
	waking(id_of(ctx->args[0]));
	return 1;
}

int on_wakeup(struct bpf_raw_tracepoint_args *ctx)
{
	woken(id_of(ctx->args[0]));
	return 1;
}
#else
union switch_record {
	FIELD(u64, prev_state, SCHED_SWITCH_PREV_STATE);
	FIELD(u32, next_pid, SCHED_SWITCH_NEXT_PID);
};

union waking_record {
	FIELD(u32, pid, SCHED_WAKING_PID);
};

union wakeup_record {
	FIELD(u32, pid, SCHED_WAKEUP_PID);
};

int on_switch(union switch_record *args)
{
	switched(args, args->prev_state & 0xff, own_id(args->next_pid));
	return 1;
}

/* In the context of the waker; `sched_wakeup` may come on the CPU of the one that is woken, by an interrupt. */
int on_waking(union waking_record *args)
{
	waking(own_id(args->pid));
	return 1;
}

int on_wakeup(union wakeup_record *args)
{
	woken(own_id(args->pid));
	return 1;
}
#endif

