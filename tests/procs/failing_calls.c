/* Makes calls of a chosen function fail: LD_PRELOAD it, then call sk_fail() from the process itself; or name a file of
   sizeof (struct plan) bytes in SK_FAIL, which another process maps and writes (tests/procs/failing_disk.py). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct plan {
    char functions[64];      /* one name, or several separated by commas */
    char path[64];           /* a part of the name of the file; empty: any, also where there is no descriptor */
    int number, is_short;    /* the errno; or write half of the bytes and report so */
    long first, last, calls; /* counted from 1; last < first: never */
    long clock_step_s;       /* added to the clock of the day */
} own, *plan = &own;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("SK_FAIL");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *shared = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED) plan = shared;
}

/* From the first-th call on (counted from 1) to the last-th one, fail with that errno; last < first: never. */
void sk_fail(const char *function, long from, long to, int code) {
    strncpy(plan->functions, function, sizeof plan->functions - 1);
    plan->first = from, plan->last = to, plan->number = code, plan->calls = 0;
}

long sk_calls(void) { return plan->calls; }

static int is_named(const char *function) {
    size_t length = strlen(function);
    for (const char *at = plan->functions; (at = strstr(at, function)); at += length)
        if ((at == plan->functions || at[-1] == ',') && (!at[length] || at[length] == ',')) return 1;
    return 0;
}

static int is_meant(int fd) {
    char link[32], path[4096];
    if (!plan->path[0]) return 1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, plan->path) != NULL;
}

static int fails_on(const char *function, int fd) {
    if (!plan->functions[0] || !is_named(function) || !is_meant(fd)) return 0;
    long call = __sync_add_and_fetch(&plan->calls, 1);
    if (call < plan->first || call > plan->last) return 0;
    errno = plan->number;
    return 1;
}

static int fails_on_name(const char *function, const char *path) {
    if (!plan->functions[0] || !is_named(function) || (plan->path[0] && !strstr(path, plan->path))) return 0;
    long call = __sync_add_and_fetch(&plan->calls, 1);
    if (call < plan->first || call > plan->last) return 0;
    errno = plan->number;
    return 1;
}

static int fails(const char *function) { return fails_on(function, -1); }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITES(name, fd, size, ...)                                             \
    if (fails_on(#name, fd)) {                                                  \
        if (!plan->is_short) return -1;                                         \
        size = size > 1 ? size / 2 : size;                                      \
    }                                                                           \
    return __VA_ARGS__

ssize_t write(int fd, const void *data, size_t size) { WRITES(write, fd, size, REAL(write)(fd, data, size)); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    WRITES(pwrite, fd, size, REAL(pwrite)(fd, data, size, at));
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    WRITES(pwrite, fd, size, REAL(pwrite64)(fd, data, size, at));
}
ssize_t read(int fd, void *data, size_t size) { return fails_on("read", fd) ? -1 : REAL(read)(fd, data, size); }
ssize_t pread(int fd, void *data, size_t size, off_t at) {
    return fails_on("pread", fd) ? -1 : REAL(pread)(fd, data, size, at);
}
ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    return fails_on("pread", fd) ? -1 : REAL(pread64)(fd, data, size, at);
}
ssize_t preadv(int fd, const struct iovec *parts, int count, off_t at) {
    return fails_on("pread", fd) ? -1 : REAL(preadv)(fd, parts, count, at);
}
ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t at) {
    return fails_on("pread", fd) ? -1 : REAL(preadv64)(fd, parts, count, at);
}
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *there, size_t size, unsigned flags) {
    if (fails_on("pread", from) || fails_on("pwrite", to)) return -1;
    return REAL(copy_file_range)(from, at, to, there, size, flags);
}
int flock(int fd, int operation) { return fails_on("flock", fd) ? -1 : REAL(flock)(fd, operation); }
#define OPENS(name, ...)                                                        \
    va_list rest;                                                               \
    va_start(rest, flags);                                                      \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;     \
    va_end(rest);                                                               \
    return fails_on_name("open", path) ? -1 : REAL(name)(__VA_ARGS__, mode)
int open(const char *path, int flags, ...) { OPENS(open, path, flags); }
int open64(const char *path, int flags, ...) { OPENS(open64, path, flags); }
int openat(int folder, const char *path, int flags, ...) { OPENS(openat, folder, path, flags); }
int openat64(int folder, const char *path, int flags, ...) { OPENS(openat64, folder, path, flags); }
int ftruncate(int fd, off_t size) { return fails_on("ftruncate", fd) ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { return fails_on("ftruncate", fd) ? -1 : REAL(ftruncate64)(fd, size); }
int fsync(int fd) { return fails_on("fsync", fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fails_on("fdatasync", fd) ? -1 : REAL(fdatasync)(fd); }
int close(int fd) { return fails_on("close", fd) ? (REAL(close)(fd), errno = plan->number, -1) : REAL(close)(fd); }
int linkat(int old, const char *from, int new, const char *to, int flags) {
    return fails("linkat") ? -1 : REAL(linkat)(old, from, new, to, flags);
}
int unlinkat(int fd, const char *path, int flags) {
    return fails("unlinkat") ? -1 : REAL(unlinkat)(fd, path, flags);
}
int unlink(const char *path) { return fails("unlink") ? -1 : REAL(unlink)(path); }
int renameat(int old, const char *from, int new, const char *to) {
    return fails("renameat") ? -1 : REAL(renameat)(old, from, new, to);
}
int renameat2(int old, const char *from, int new, const char *to, unsigned flags) {
    if (fails("renameat2")) return -1;
    int (*real)(int, const char *, int, const char *, unsigned) = dlsym(RTLD_NEXT, "renameat2");
    return real(old, from, new, to, flags);
}
/* Python and others call these by their names; the kernel's own call would pass this by, and so does libzmq. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = REAL(clock_gettime)(clock, now);
    if (!done && clock == CLOCK_REALTIME) now->tv_sec += plan->clock_step_s;
    return done;
}
