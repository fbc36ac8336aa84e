/* Calls of library functions: how often and how long. The helper adds a pair of programs per function,
 * which call these two with its number. */
#include <uapi/linux/ptrace.h>

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

static __always_inline struct function *function_of(u32 tgid, u32 number)
{
	struct function_key key = {.tgid = tgid, .function = number};
	struct function *function = functions.lookup(&key);
	if (function)
		return function;
	struct function fresh = {};
	return functions.lookup_or_try_init(&key, &fresh);
}

static __always_inline int enter(u32 number)
{
	u64 key = current_ids() << 8 | number, now = bpf_ktime_get_ns();
	count_hit(HIT_LIBRARY);
	entered.update(&key, &now);
	return 0;
}

static __always_inline int leave(u32 number)
{
	u64 who = current_ids(), key = who << 8 | number;
	u64 *since = entered.lookup(&key);
	if (!since)
		return 0;
	u64 ns = bpf_ktime_get_ns() - *since;
	entered.delete(&key);
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
