/* Makes one call of a chosen function fail: LD_PRELOAD it, then call sk_fail() from the process itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

static char armed[32];
static long calls, first, last;
static int number;

/* From the first-th call on (counted from 1) to the last-th one, fail with that errno; last < first: never. */
void sk_fail(const char *function, long from, long to, int code) {
    strncpy(armed, function, sizeof armed - 1);
    first = from, last = to, number = code, calls = 0;
}

long sk_calls(void) { return calls; }

static int fails(const char *function) {
    if (strcmp(function, armed)) return 0;
    ++calls;
    if (calls < first || calls > last) return 0;
    errno = number;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return fails("pwrite") ? -1 : REAL(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return fails("pwrite") ? -1 : REAL(pwrite64)(fd, data, size, at);
}
int ftruncate(int fd, off_t size) { return fails("ftruncate") ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { return fails("ftruncate") ? -1 : REAL(ftruncate64)(fd, size); }
int fsync(int fd) { return fails("fsync") ? -1 : REAL(fsync)(fd); }
int close(int fd) { return fails("close") ? (REAL(close)(fd), errno = number, -1) : REAL(close)(fd); }
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
