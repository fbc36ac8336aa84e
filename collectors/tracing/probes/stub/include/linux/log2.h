/* BPF_STACK_TRACE wants a constant: give it powers of two. */
#ifndef LLMTOP_LOG2_H
#define LLMTOP_LOG2_H
#define roundup_pow_of_two(number) (number)
#endif
