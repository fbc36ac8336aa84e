#ifndef LLMTOP_TYPES_H
#define LLMTOP_TYPES_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;

typedef __s8 s8;
typedef __u8 u8;
typedef __s16 s16;
typedef __u16 u16;
typedef __s32 s32;
typedef __u32 u32;
typedef __s64 s64;
typedef __u64 u64;

typedef __u16 __be16, __le16, __sum16;
typedef __u32 __be32, __le32, __wsum;
typedef __u64 __be64, __le64;
typedef __u64 __attribute__((aligned(8))) __aligned_u64;

typedef u8 uint8_t;
typedef u16 uint16_t;
typedef u32 uint32_t;
typedef u64 uint64_t;
typedef s8 int8_t;
typedef s16 int16_t;
typedef s32 int32_t;
typedef s64 int64_t;
typedef unsigned int uint;

typedef unsigned long size_t, uintptr_t;
typedef long ssize_t;
typedef long long loff_t;
typedef int pid_t, clockid_t;
typedef unsigned int uid_t, gid_t, gfp_t, fmode_t;
typedef unsigned short umode_t;
typedef u32 dev_t;
typedef u64 sector_t;
typedef _Bool bool;
enum { false, true };

#define NULL ((void *)0)
#define __user
#define __kernel
#define __iomem
#define __force
#define __packed __attribute__((packed))
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#define TASK_COMM_LEN 16

/* Registers as the kernel saves them. The layouts are ABI: ptrace(2) and perf hand them to user space. */
#if defined(__x86_64__)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8;
	unsigned long ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__aarch64__)
struct user_pt_regs {
	u64 regs[31];
	u64 sp, pc, pstate;
};
struct pt_regs {
	union {
		struct user_pt_regs user_regs;
		struct {
			u64 regs[31];
			u64 sp, pc, pstate;
		};
	};
	u64 orig_x0;
	s32 syscallno;
	u32 unused;
};
#endif

#endif
