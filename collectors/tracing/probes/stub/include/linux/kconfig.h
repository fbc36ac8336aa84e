/* bcc includes this file before anything else. It and its neighbours stand in for the kernel's headers: the
 * programs beside them touch no kernel structure but the ones whose layout is ABI, so they need no more. */
#ifndef LLMTOP_KCONFIG_H
#define LLMTOP_KCONFIG_H
#define CONFIG_64BIT 1
#define CONFIG_BPF_SYSCALL 1
#define CONFIG_ARCH_HAS_SYSCALL_WRAPPER 1
#ifdef __x86_64__
#define CONFIG_X86_64 1
#endif
#endif
