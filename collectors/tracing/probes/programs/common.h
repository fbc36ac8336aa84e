/* Put in front of every program. Which processes are looked at, and how durations are sorted. */
#include <linux/types.h>

/* Where a tracepoint has a field differs between kernels: programs are compiled with places that no record has, and the
 * helper puts the kernel's own in as it loads them (compiled.py). */
#define FIELD(type, name, place) struct { char before_##name[place]; type name; }

#define MARKS 65536
#define SLOTS 28
#define LOWEST_LOG2 8

/* What the counters of `hits` stand for: how often each kind of probe ran, and for how long stacks were walked. */
enum { HIT_CALL, HIT_FOREIGN_CALL, HIT_SWITCH, HIT_FOREIGN_SWITCH, HIT_STACK, HIT_SAMPLE, HIT_LIBRARY, HIT_LIFECYCLE, HIT_POLL,
       STACK_NS, COUNTERS };

#if defined(__x86_64__)
#define REG_ARGUMENT_3(regs) ((regs)->dx)
#define REG_ARGUMENT_4(regs) ((regs)->r10)
#elif defined(__aarch64__)
#define REG_ARGUMENT_3(regs) ((regs)->regs[2])
#define REG_ARGUMENT_4(regs) ((regs)->regs[3])
#endif

/* What the time of a round is spent in, from the end of a wait for the GPU to that of the next (library.c): off the CPU,
 * and in calls that do not wait for the GPU. */
enum { QUEUED, LOCKED, FOR_INPUT, ASLEEP, OFF_CPU_KINDS };
enum { ALLOCATION, COPY, COLLECTION, CALL_KINDS };

/* What a thread does in libraries: library.c keeps it; scheduler.c asks whether a sleep is within a call, and adds what a
 * round is off the CPU. */
struct library_thread {
	u64 launches;
	u64 sync_ns;
	u64 sync_since;		/* when the synchronising call began that it is in; 0 outside of one */
	u64 sync_stack;		/* the stack pointer at the beginning of that call */
	u64 launch_stack;	/* likewise, of the launch that it is in */
	u64 syncs;		/* synchronising calls */
	u64 steps;		/* from one of them to the next, while launches were counted from end to end */
	u64 step_launches;	/* in these */
	u64 launches_before;	/* `launches` at the last synchronising call */
	u64 collecting_ns;	/* in Python's garbage collector */
	u64 collections;	/* how often */
	u64 query_stack;	/* likewise, of the query that it is in */
	u32 sync_function;
	u32 launch_function;
	u32 tgid;
	u32 attachment;	/* which time of probes on launches `launch_stack` is of */
	u32 step_attachment;	/* likewise, `launches_before` */
	u32 query_function;
	/* Of the round that it is in. */
	u64 round_start;	/* 0 before the first one */
	u64 round_wait;		/* in calls that wait for the GPU */
	u64 woken_late;		/* of that, in the run queue */
	u64 off_cpu[OFF_CPU_KINDS];	/* but not in calls that wait for the GPU */
	u64 in_calls[CALL_KINDS];
	u64 call_since, call_ns;	/* the last call that counts there: one around it does not count it again */
	u64 round_faults;	/* the task's page faults when it began */
	u64 launch_faults;	/* likewise at its last launch, where another thread waits for it; 0 before one */
	u32 round_launches;
	u32 round_graphs;	/* of graphs alone */
	u32 waits_itself;	/* it ended a round of its own not so many of others' waits ago */
	/* Of the queries that it asks again and again, until the GPU has finished. */
	u32 polls;		/* answers in a row that it has not; 0 outside of such a loop */
	u64 poll_since, poll_last;	/* when the first one was asked, and the last one answered */
	u64 poll_handle;	/* of which event or stream */
	u64 query_handle;	/* likewise, of the query that it is in */
	u64 poll_switches;	/* how often it had lost the CPU by `poll_last` */
	u32 polls_itself;	/* it waited so not so many answers ago */
	u32 unused;
};

/* All programs have these together. */
BPF_TABLE("hash", u32, u32, targets, 16384);
BPF_TABLE("array", u32, u64, marks, MARKS);
BPF_TABLE("percpu_array", u32, u64, hits, COUNTERS);
BPF_TABLE("hash", u32, struct library_thread, library_threads, 16384);
#if IN_NAMESPACE
BPF_TABLE("lru_hash", u32, u32, own_ids, 16384);
BPF_TABLE("lru_hash", u32, u32, unborn, 4096);
#endif

/* An array look-up is a few inlined instructions, a hash look-up is a call: most events of a machine belong to
 * processes that nobody asked about, so they are turned away here. A mark is never taken back: a stale one costs
 * its owner the hash look-up, nothing else. */
static __always_inline bool is_marked(u32 id)
{
	u32 place = id & (MARKS - 1);
	u64 *mark = marks.lookup(&place);
	return mark && *mark;
}

#define MARKED 1
#define IN_LIBRARIES 2	/* a thread with an entry in library_threads */

static __always_inline bool has_mark(u32 id, u64 kind)
{
	u32 place = id & (MARKS - 1);
	u64 *mark = marks.lookup(&place);
	return mark && *mark & kind;
}

static __always_inline void set_mark_of(u32 id, u64 kind)
{
	u32 place = id & (MARKS - 1);
	u64 *mark = marks.lookup(&place);
	if (mark && !(*mark & kind))
		*mark |= kind;
}

static __always_inline void set_mark(u32 id)
{
	set_mark_of(id, MARKED);
}

/* Every program takes ids from the functions below, so that all maps hold the ids that llmtop knows.
 *
 * Inside a PID namespace these are not the machine's own, which the kernel puts into tracepoints. The current thread
 * can be asked for both; those of another thread (`next`, a woken one, a child) are looked up by its machine id in
 * `own_ids`, which holds the threads looked at from the first time they were seen running. Machine ids are marked
 * too, so that the look-up is spared for most. */
#define OUTSIDE 0xffffffff	/* a thread that has no id in llmtop's namespace */

#if IN_NAMESPACE
static __always_inline u64 current_ids(void)
{
	struct bpf_pidns_info ids = {};
	if (bpf_get_ns_current_pid_tgid(NAMESPACE_DEVICE, NAMESPACE_INODE, &ids, sizeof(ids)))
		return 0;	/* it runs in another namespace */
	return (u64)ids.tgid << 32 | ids.pid;
}

/* The id of a thread named by a tracepoint; 0 for one that is not looked at. */
static __always_inline u32 own_id(u32 machine_id)
{
	u32 *own = is_marked(machine_id) ? own_ids.lookup(&machine_id) : 0;
	return own ? *own : 0;
}

/* The current thread is one to be told of: let it be found by its machine id. */
static __always_inline void know_current(u32 tid)
{
	u32 machine_id = bpf_get_current_pid_tgid();
	if (own_id(machine_id) == tid)
		return;
	own_ids.update(&machine_id, &tid);
	set_mark(machine_id);
}

/* The current thread ends: its machine id will be another's. */
static __always_inline void forget_current(void)
{
	u32 machine_id = bpf_get_current_pid_tgid();
	if (!is_marked(machine_id))
		return;
	own_ids.delete(&machine_id);
	unborn.delete(&machine_id);
}

/* A child of a process looked at: when it is made, only its machine id can be told. */
static __always_inline void expect(u32 child, u32 parent)
{
	unborn.update(&child, &parent);
	set_mark(child);
}

/* Whether the current process is such a child that runs for the first time; it is put on the list then. */
static __always_inline bool is_born(u32 tgid)
{
	u32 machine_id = bpf_get_current_pid_tgid() >> 32;
	u32 *parent = tgid && is_marked(machine_id) ? unborn.lookup(&machine_id) : 0;
	if (!parent)
		return false;
	targets.update(&tgid, parent);
	set_mark(tgid);
	unborn.delete(&machine_id);
	return true;
}
#else
static __always_inline u64 current_ids(void)
{
	return bpf_get_current_pid_tgid();
}

static __always_inline u32 own_id(u32 machine_id)
{
	return machine_id;
}

static __always_inline void know_current(u32 tid) {}
static __always_inline void forget_current(void) {}

static __always_inline void expect(u32 child, u32 parent)
{
	targets.update(&child, &parent);
	set_mark(child);
}

static __always_inline bool is_born(u32 tgid)
{
	return false;
}
#endif

static __always_inline bool is_target(u32 tgid)
{
	return (is_marked(tgid) && targets.lookup(&tgid)) || is_born(tgid);
}

static __always_inline void add_hits(u32 part, u64 more)
{
	u64 *count = hits.lookup(&part);
	if (count)
		*count += more;
}

static __always_inline void count_hit(u32 part)
{
	add_hits(part, 1);
}

/* Slot 0 is below 2^LOWEST_LOG2 ns, slot i below 2^(LOWEST_LOG2 + i), the last one everything above. */
static __always_inline u32 slot_of(u64 ns)
{
	u32 power = 0;
	if (ns >= 1ULL << 32) { ns >>= 32; power += 32; }
	if (ns >= 1 << 16) { ns >>= 16; power += 16; }
	if (ns >= 1 << 8) { ns >>= 8; power += 8; }
	if (ns >= 1 << 4) { ns >>= 4; power += 4; }
	if (ns >= 1 << 2) { ns >>= 2; power += 2; }
	if (ns >= 1 << 1) power += 1;
	if (power < LOWEST_LOG2)
		return 0;
	power -= LOWEST_LOG2 - 1;
	return power < SLOTS ? power : SLOTS - 1;
}
