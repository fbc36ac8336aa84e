/* What runs: a look at every CPU many times a second, by a software timer. */
#include <uapi/linux/ptrace.h>
#include <uapi/linux/bpf_perf_event.h>

struct sample_key {
	u32 tid;
	u32 tgid;
	s32 user_stack;
	s32 kernel_stack;
};

BPF_HASH(samples, struct sample_key, u64, 8192);
BPF_STACK_TRACE(stacks, 8192);
BPF_ARRAY(lost, u64, 1);

int on_sample(struct bpf_perf_event_data *ctx)
{
	u64 who = current_ids();
	u32 tgid = who >> 32;
	if (!is_target(tgid))
		return 0;
	count_hit(HIT_SAMPLE);
	struct sample_key key = {.tid = who, .tgid = tgid};
	key.user_stack = stacks.get_stackid(&ctx->regs, BPF_F_USER_STACK);
	key.kernel_stack = stacks.get_stackid(&ctx->regs, 0);
	u64 none = 0, *count = samples.lookup_or_try_init(&key, &none);
	if (!count) {
		lost.increment(0);
		return 0;
	}
	__sync_fetch_and_add(count, 1);
	return 0;
}
