/* Put in front of every program. Which processes are looked at, and how durations are sorted. */
#include <linux/types.h>

#define MARKS 65536
#define SLOTS 28
#define LOWEST_LOG2 8

/* What the counters of `hits` stand for. */
enum { HIT_CALL, HIT_FOREIGN_CALL, HIT_SWITCH, HIT_FOREIGN_SWITCH, HIT_STACK, HIT_SAMPLE, HIT_LIBRARY, HIT_LIFECYCLE };

#if defined(__x86_64__)
#define REG_ARGUMENT_3(regs) ((regs)->dx)
#define REG_ARGUMENT_4(regs) ((regs)->r10)
#elif defined(__aarch64__)
#define REG_ARGUMENT_3(regs) ((regs)->regs[2])
#define REG_ARGUMENT_4(regs) ((regs)->regs[3])
#endif

#if OWNS_TARGETS
BPF_TABLE_PUBLIC("hash", u32, u32, targets, 16384);
BPF_TABLE_PUBLIC("array", u32, u64, marks, MARKS);
BPF_TABLE_PUBLIC("percpu_array", u32, u64, hits, 8);
#else
BPF_TABLE("extern", u32, u32, targets, 16384);
BPF_TABLE("extern", u32, u64, marks, MARKS);
BPF_TABLE("extern", u32, u64, hits, 8);
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

static __always_inline void set_mark(u32 id)
{
	u32 place = id & (MARKS - 1);
	u64 *mark = marks.lookup(&place);
	if (mark)
		*mark = 1;
}

static __always_inline bool is_target(u32 tgid)
{
	return is_marked(tgid) && targets.lookup(&tgid);
}

static __always_inline void count_hit(u32 part)
{
	u64 *count = hits.lookup(&part);
	if (count)
		(*count)++;
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
