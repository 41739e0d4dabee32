/* For LD_PRELOAD: files are opened with O_DIRECT. fsx has no option for it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    /* The file of the test. */
    const char *name = strrchr(path, '/');
    int direct = name && strcmp(name, "/direct") == 0 ? O_DIRECT : 0;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | direct, mode);
}
