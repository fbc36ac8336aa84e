/* Chooses between variants of bcc's own helpers only; the kernel does not check it any more (since 5.0). */
#ifndef LINUX_VERSION_CODE
#define KERNEL_VERSION(major, minor, patch) (((major) << 16) + ((minor) << 8) + (patch))
#define LINUX_VERSION_CODE KERNEL_VERSION(5, 15, 0)
#endif
