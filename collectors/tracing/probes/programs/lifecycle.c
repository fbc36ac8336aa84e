/* Follows the children of the processes looked at, and their end.
 *
 * Every program on a plain tracepoint returns 1: a 0 would take the event away from all other perf users. */

BPF_HASH(ended, u32, u32, 16384);	/* tid -> tgid */
BPF_HASH(renewed, u32, u64, 1024);	/* tgid -> when it called exec */

union fork_record {
	FIELD(u32, child_pid, SCHED_PROCESS_FORK_CHILD_PID);
};

int on_fork(union fork_record *args)
{
	u32 parent = current_ids() >> 32, child = args->child_pid;
	if (!is_target(parent))
		return 1;
	count_hit(HIT_LIFECYCLE);
	/* A new thread comes here too. Its id is never looked up as a process's: it only takes room until it ends. */
	expect(child, parent);
	return 1;
}

int on_exit(void *args)
{
	u64 id = current_ids();
	u32 tgid = id >> 32, tid = id;
	bool is_ours = is_target(tgid);
	forget_current();
	if (!is_ours)
		return 1;
	count_hit(HIT_LIFECYCLE);
	ended.update(&tid, &tgid);
	/* The first thread may end before the others: the helper takes processes off the list. */
	if (tid != tgid)
		targets.delete(&tid);
	return 1;
}

int on_exec(void *args)
{
	u32 tgid = current_ids() >> 32;
	u64 now = bpf_ktime_get_ns();
	if (is_target(tgid))
		renewed.update(&tgid, &now);
	return 1;
}
