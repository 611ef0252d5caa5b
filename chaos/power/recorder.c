/* Records what a process asks of the file system below one directory, in order and with contents, so that a test can make the
 * directory as a disk could look after power loss at any point of it. Preloaded:
 *
 *     cc -shared -fPIC -O2 -o recorder.so recorder.c
 *     LD_PRELOAD=recorder.so POWER_ROOT=/dir POWER_LOG=/dir.log program
 *
 * One record for each call that succeeded, native byte order:
 *
 *     u8 kind, u64 inode, u64 at, u32 length, then that many bytes
 *
 *     W  bytes written to inode at offset `at`       T  inode's size is `at` now
 *     F  inode was made durable (fsync, fdatasync)   Y  the directory named in the bytes was made durable
 *     C  inode was created, bytes = name             M  a directory was made, bytes = name
 *     R  bytes = old name, NUL, new name             U  bytes = name that is gone
 *
 * sync_file_range is recorded nowhere: it promises nothing. Calls on the directory are made one at a time, so that their order
 * in the recording is their order on the disk. Memory maps are not seen; neither store writes through one (SQLite's -shm is
 * rebuilt after a crash). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int out = -1;

__attribute__((constructor)) static void begin(void)
{
    const char *directory = getenv("POWER_ROOT"), *log = getenv("POWER_LOG");
    if (!directory || !log || !realpath(directory, root))
        return;
    root_length = strlen(root);
    out = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* A recording with a gap proves nothing. */
static void must(int held)
{
    if (!held) {
        static const char message[] = "power recorder: cannot record\n";
        syscall(SYS_write, 2, message, sizeof message - 1);
        abort();
    }
}

static void put(const void *bytes, size_t length)
{
    const char *from = bytes;
    while (length > 0) {
        ssize_t done = syscall(SYS_write, out, from, length);
        must(done > 0);
        from += done;
        length -= done;
    }
}

static void record(char kind, uint64_t inode, uint64_t at, const void *bytes, uint32_t length)
{
    char head[21];
    head[0] = kind;
    memcpy(head + 1, &inode, 8);
    memcpy(head + 9, &at, 8);
    memcpy(head + 17, &length, 4);
    put(head, sizeof head);
    put(bytes, length);
}

static int below(const char *path)
{
    return out >= 0 && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0);
}

/* Name of an open file; false when it is not below the root. */
static int name_of(int fd, char *name)
{
    char link[64];
    if (out < 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, name, PATH_MAX - 1);
    if (length <= 0)
        return 0;
    name[length] = 0;
    return below(name);
}

static uint64_t inode_of(int fd)
{
    struct stat facts;
    must(fstat(fd, &facts) == 0);
    return facts.st_ino;
}

/* Absolute name of a path; false when it is not below the root. The directory that holds it must exist. */
static int absolute(int directory, const char *path, char *name)
{
    char held[PATH_MAX];
    if (out < 0)
        return 0;
    if (path[0] == '/') {
        snprintf(name, PATH_MAX, "%s", path);
    } else if (directory == AT_FDCWD) {
        if (!getcwd(held, sizeof held) || snprintf(name, PATH_MAX, "%s/%s", held, path) >= PATH_MAX)
            return 0;
    } else {
        if (!name_of(directory, held) || snprintf(name, PATH_MAX, "%s/%s", held, path) >= PATH_MAX)
            return 0;
    }
    return below(name);
}

/* Contents */

static ssize_t written(int fd, const struct iovec *parts, int count, off_t at, ssize_t done)
{
    uint64_t inode = inode_of(fd);
    ssize_t left = done;
    for (int i = 0; i < count && left > 0; i++) {
        size_t length = parts[i].iov_len < (size_t)left ? parts[i].iov_len : (size_t)left;
        record('W', inode, at, parts[i].iov_base, length);
        at += length;
        left -= length;
    }
    return done;
}

/* `at` < 0: where the descriptor stands. */
static ssize_t write_at(int fd, const struct iovec *parts, int count, off_t at)
{
    char name[PATH_MAX];
    int ours = name_of(fd, name);
    if (!ours)
        return at < 0 ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev, fd, parts, count, (long)at, 0L);
    pthread_mutex_lock(&turn);
    off_t from = at;
    ssize_t done;
    if (at < 0) {
        int appends = syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND;
        from = syscall(SYS_lseek, fd, 0L, appends ? SEEK_END : SEEK_CUR);
        done = syscall(SYS_writev, fd, parts, count);
    } else {
        done = syscall(SYS_pwritev, fd, parts, count, (long)at, 0L);
    }
    if (done > 0)
        written(fd, parts, count, from, done);
    pthread_mutex_unlock(&turn);
    return done;
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    struct iovec part = {(void *)bytes, length};
    return write_at(fd, &part, 1, -1);
}

ssize_t writev(int fd, const struct iovec *parts, int count) { return write_at(fd, parts, count, -1); }

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    struct iovec part = {(void *)bytes, length};
    return write_at(fd, &part, 1, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) { return pwrite(fd, bytes, length, at); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return write_at(fd, parts, count, at); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { return write_at(fd, parts, count, at); }

int ftruncate(int fd, off_t size)
{
    char name[PATH_MAX];
    if (!name_of(fd, name))
        return syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&turn);
    int failed = syscall(SYS_ftruncate, fd, size);
    if (!failed)
        record('T', inode_of(fd), size, "", 0);
    pthread_mutex_unlock(&turn);
    return failed;
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int truncate(const char *path, off_t size)
{
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int failed = ftruncate(fd, size);
    syscall(SYS_close, fd);
    return failed;
}

int truncate64(const char *path, off64_t size) { return truncate(path, size); }

/* These would write past the recorder; callers fall back to plain writes. */
int fallocate(int fd, int mode, off_t at, off_t length)
{
    char name[PATH_MAX];
    if (!name_of(fd, name))
        return syscall(SYS_fallocate, fd, mode, at, length);
    errno = EOPNOTSUPP;
    return -1;
}

int fallocate64(int fd, int mode, off64_t at, off64_t length) { return fallocate(fd, mode, at, length); }

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t length, unsigned flags)
{
    char name[PATH_MAX];
    if (!name_of(to, name))
        return syscall(SYS_copy_file_range, from, from_at, to, to_at, length, flags);
    errno = ENOSYS;
    return -1;
}

ssize_t sendfile(int to, int from, off_t *at, size_t length)
{
    char name[PATH_MAX];
    if (!name_of(to, name))
        return syscall(SYS_sendfile, to, from, at, length);
    errno = ENOSYS;
    return -1;
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t length) { return sendfile(to, from, at, length); }

static int make_durable(long call, int fd)
{
    char name[PATH_MAX];
    if (!name_of(fd, name))
        return syscall(call, fd);
    pthread_mutex_lock(&turn);
    int failed = syscall(call, fd);
    struct stat facts;
    if (!failed && fstat(fd, &facts) == 0) {
        if (S_ISDIR(facts.st_mode))
            record('Y', facts.st_ino, 0, name, strlen(name));
        else
            record('F', facts.st_ino, 0, "", 0);
    }
    pthread_mutex_unlock(&turn);
    return failed;
}

int fsync(int fd) { return make_durable(SYS_fsync, fd); }
int fdatasync(int fd) { return make_durable(SYS_fdatasync, fd); }

/* Names */

static int open_at(int directory, const char *path, int flags, mode_t mode)
{
    char name[PATH_MAX];
    if (!(flags & (O_CREAT | O_TRUNC)) || !absolute(directory, path, name))
        return syscall(SYS_openat, directory, path, flags, mode);
    pthread_mutex_lock(&turn);
    struct stat before;
    int existed = syscall(SYS_newfstatat, directory, path, &before, 0) == 0;
    int fd = syscall(SYS_openat, directory, path, flags, mode);
    if (fd >= 0 && !existed)
        record('C', inode_of(fd), 0, name, strlen(name));
    else if (fd >= 0 && (flags & O_TRUNC))
        record('T', inode_of(fd), 0, "", 0);
    pthread_mutex_unlock(&turn);
    return fd;
}

#define MODE(flags, last)                        \
    mode_t mode = 0;                             \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {     \
        va_list rest;                            \
        va_start(rest, last);                    \
        mode = va_arg(rest, mode_t);             \
        va_end(rest);                            \
    }

int open(const char *path, int flags, ...) { MODE(flags, flags) return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, flags) return open_at(AT_FDCWD, path, flags, mode); }
int openat(int directory, const char *path, int flags, ...) { MODE(flags, flags) return open_at(directory, path, flags, mode); }
int openat64(int directory, const char *path, int flags, ...) { MODE(flags, flags) return open_at(directory, path, flags, mode); }

int mkdirat(int directory, const char *path, mode_t mode)
{
    char name[PATH_MAX];
    if (!absolute(directory, path, name))
        return syscall(SYS_mkdirat, directory, path, mode);
    pthread_mutex_lock(&turn);
    int failed = syscall(SYS_mkdirat, directory, path, mode);
    if (!failed)
        record('M', 0, 0, name, strlen(name));
    pthread_mutex_unlock(&turn);
    return failed;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    char names[2 * PATH_MAX], target[PATH_MAX];
    if (!absolute(from, old, names) || !absolute(to, new, target))
        return syscall(SYS_renameat2, from, old, to, new, flags);
    pthread_mutex_lock(&turn);
    int failed = syscall(SYS_renameat2, from, old, to, new, flags);
    if (!failed) {
        size_t length = strlen(names) + 1;
        strcpy(names + length, target);
        record('R', 0, 0, names, length + strlen(target));
    }
    pthread_mutex_unlock(&turn);
    return failed;
}

int renameat(int from, const char *old, int to, const char *new) { return renameat2(from, old, to, new, 0); }
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }

int unlinkat(int directory, const char *path, int flags)
{
    char name[PATH_MAX];
    if (!absolute(directory, path, name))
        return syscall(SYS_unlinkat, directory, path, flags);
    pthread_mutex_lock(&turn);
    int failed = syscall(SYS_unlinkat, directory, path, flags);
    if (!failed)
        record('U', 0, 0, name, strlen(name));
    pthread_mutex_unlock(&turn);
    return failed;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
