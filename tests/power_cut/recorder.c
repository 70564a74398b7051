/* Records the file operations of a process below one directory, in order and with all data: LD_PRELOAD this.
 *
 * POWER_CUT_ROOT is the real path of the directory; POWER_CUT_TRACE is the path of the trace, which is elsewhere and
 * must not exist yet. The first process that loads the library records; its children do not. trace.py reads the trace.
 *
 * An operation and its record happen under one lock, so the trace has the order of all threads. Files are identified by
 * their inode numbers: descriptors may be duplicated and files may be renamed or linked. The library calls the kernel
 * directly, so it does not depend on which variants of a function the C library has.
 *
 * Not recorded: memory mappings that are written to, io_uring, writes by stdio (FILE *), and symbolic links. A test
 * replays the trace and compares the outcome with the directory, which shows whether the process uses them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KNOWN_SLOTS = 1 << 18, CHUNK = 1 << 16 };

struct header {
    char kind;
    uint64_t inode;
    int64_t offset; /* of a write; of a truncation, the size */
    uint32_t first; /* bytes of the path or the data that follow */
    uint32_t second;
} __attribute__((packed));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;
static char root[PATH_MAX];
static dev_t device;
/* Inodes of files and directories that were created below the root. They are never removed: the model ignores writes to
 * a file without a name, and treats a reused number as a new file. */
static uint64_t known[KNOWN_SLOTS];

static void give_up(const char *why) {
    dprintf(STDERR_FILENO, "power-cut recorder: %s: %s\n", why, strerror(errno));
    abort();
}

static void append(char kind, uint64_t inode, int64_t offset, const void *first, size_t first_size, const char *second) {
    size_t second_size = second ? strlen(second) : 0;
    struct header header = {kind, inode, offset, (uint32_t)first_size, (uint32_t)second_size};
    struct iovec parts[] = {{&header, sizeof header}, {(void *)first, first_size}, {(void *)second, second_size}};
    ssize_t written = syscall(SYS_writev, trace, parts, 3);
    if (written != (ssize_t)(sizeof header + first_size + second_size))
        give_up("cannot write the trace");
}

static void append_path(char kind, uint64_t inode, const char *path) {
    append(kind, inode, 0, path, strlen(path), NULL);
}

static bool is_known(uint64_t inode) {
    for (uint64_t slot = inode % KNOWN_SLOTS;; slot = (slot + 1) % KNOWN_SLOTS) {
        uint64_t found = __atomic_load_n(&known[slot], __ATOMIC_ACQUIRE);
        if (found == inode || found == 0)
            return found == inode;
    }
}

static void remember(uint64_t inode) {
    static int count;
    if (is_known(inode))
        return;
    if (++count == KNOWN_SLOTS / 2)
        give_up("too many files");
    uint64_t slot = inode % KNOWN_SLOTS;
    while (known[slot] != 0)
        slot = (slot + 1) % KNOWN_SLOTS;
    __atomic_store_n(&known[slot], inode, __ATOMIC_RELEASE);
}

__attribute__((constructor)) static void begin(void) {
    const char *directory = getenv("POWER_CUT_ROOT"), *path = getenv("POWER_CUT_TRACE");
    struct stat status;
    if (!directory || !path)
        return;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) /* a child of the process that records */
        return;
    if (strlen(directory) >= sizeof root || stat(directory, &status) != 0)
        give_up("cannot find POWER_CUT_ROOT");
    strcpy(root, directory);
    device = status.st_dev;
    trace = file;
    remember(status.st_ino);
    append('B', status.st_ino, 0, NULL, 0, NULL);
}

/* The path below the root; NULL if it is elsewhere or unknown. `out` has PATH_MAX bytes. */
static const char *below_root(int at, const char *path, char *out) {
    char joined[PATH_MAX * 2], parent[PATH_MAX], link[64];
    if (trace < 0 || !path || !*path)
        return NULL;
    joined[0] = 0;
    if (*path != '/') {
        ssize_t size = 0;
        if (at == AT_FDCWD) {
            if (!getcwd(joined, PATH_MAX))
                return NULL;
            size = (ssize_t)strlen(joined);
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
            if ((size = readlink(link, joined, PATH_MAX)) < 0)
                return NULL;
        }
        joined[size] = 0;
        strcat(joined, "/");
    }
    if (strlen(joined) + strlen(path) >= sizeof joined)
        return NULL;
    strcat(joined, path);
    for (size_t size = strlen(joined); size > 1 && joined[size - 1] == '/'; size--)
        joined[size - 1] = 0;
    char *slash = strrchr(joined, '/');
    *slash = 0;
    if (!realpath(*joined ? joined : "/", parent))
        return NULL;
    size_t size = strlen(root);
    if (strncmp(parent, root, size) != 0 || (parent[size] != '/' && parent[size] != 0))
        return NULL;
    if ((size_t)snprintf(out, PATH_MAX, "%s%s%s", parent + size + (parent[size] == '/'), parent[size] ? "/" : "",
                         slash + 1) >= PATH_MAX)
        return NULL;
    return out;
}

/* Returns 0 if there is no such file. */
static uint64_t inode_of(const char *path) {
    char whole[PATH_MAX * 2];
    struct stat status;
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    return fstatat(AT_FDCWD, whole, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status.st_ino : 0;
}

/* The inode of a descriptor's file or directory if it is below the root; otherwise 0. */
static uint64_t followed(int file) {
    struct stat status;
    int before = errno;
    if (trace < 0 || file == trace || fstat(file, &status) != 0) {
        errno = before;
        return 0;
    }
    bool has_data = S_ISREG(status.st_mode) || S_ISDIR(status.st_mode);
    return has_data && status.st_dev == device && is_known(status.st_ino) ? status.st_ino : 0;
}

/* ---- files ---- */

static int open_at(int at, const char *path, int flags, mode_t mode) {
    char buffer[PATH_MAX];
    bool changes = (flags & O_CREAT) || ((flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY);
    if (!changes || (flags & O_TMPFILE) == O_TMPFILE)
        return (int)syscall(SYS_openat, at, path, flags, mode);
    int before = errno;
    const char *name = below_root(at, path, buffer);
    errno = before;
    if (!name)
        return (int)syscall(SYS_openat, at, path, flags, mode);
    pthread_mutex_lock(&lock);
    bool existed = inode_of(name) != 0;
    errno = before;
    int file = (int)syscall(SYS_openat, at, path, flags, mode);
    if (file >= 0) {
        uint64_t inode = inode_of(name);
        if (!existed) {
            remember(inode);
            append_path('C', inode, name);
        } else if ((flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY) {
            append('T', inode, 0, NULL, 0, NULL);
        }
    }
    pthread_mutex_unlock(&lock);
    return file;
}

/* The third argument of `open`, if there is one. */
#define MODE_OF(flags)                                                                                                 \
    mode_t mode = 0;                                                                                                   \
    if (__OPEN_NEEDS_MODE(flags)) {                                                                                    \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode = va_arg(more, mode_t);                                                                                   \
        va_end(more);                                                                                                  \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_at(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE_OF(flags)
    return open_at(at, path, flags, mode);
}
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __openat_2(int at, const char *path, int flags) { return open_at(at, path, flags, 0); }
int __openat64_2(int at, const char *path, int flags) { return open_at(at, path, flags, 0); }
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static int truncate_file(int file, off_t size) {
    uint64_t inode = followed(file);
    if (!inode)
        return (int)syscall(SYS_ftruncate, file, size);
    pthread_mutex_lock(&lock);
    int outcome = (int)syscall(SYS_ftruncate, file, size);
    if (outcome == 0)
        append('T', inode, size, NULL, 0, NULL);
    pthread_mutex_unlock(&lock);
    return outcome;
}

int ftruncate(int file, off_t size) { return truncate_file(file, size); }
int ftruncate64(int file, off64_t size) { return truncate_file(file, size); }

static int truncate_path(const char *path, off_t size) {
    char buffer[PATH_MAX];
    const char *name = below_root(AT_FDCWD, path, buffer);
    if (!name)
        return (int)syscall(SYS_truncate, path, size);
    pthread_mutex_lock(&lock);
    int outcome = (int)syscall(SYS_truncate, path, size);
    if (outcome == 0)
        append('T', inode_of(name), size, NULL, 0, NULL);
    pthread_mutex_unlock(&lock);
    return outcome;
}

int truncate(const char *path, off_t size) { return truncate_path(path, size); }
int truncate64(const char *path, off64_t size) { return truncate_path(path, size); }

static int allocate(int file, int mode, off_t offset, off_t size) {
    uint64_t inode = followed(file);
    if (!inode)
        return (int)syscall(SYS_fallocate, file, mode, offset, size);
    struct stat status;
    pthread_mutex_lock(&lock);
    int outcome = (int)syscall(SYS_fallocate, file, mode, offset, size);
    if (outcome == 0 && fstat(file, &status) == 0)
        append('T', inode, status.st_size, NULL, 0, NULL);
    pthread_mutex_unlock(&lock);
    return outcome;
}

int fallocate(int file, int mode, off_t offset, off_t size) { return allocate(file, mode, offset, size); }
int fallocate64(int file, int mode, off64_t offset, off64_t size) { return allocate(file, mode, offset, size); }
int posix_fallocate(int file, off_t offset, off_t size) { return allocate(file, 0, offset, size) == 0 ? 0 : errno; }
int posix_fallocate64(int file, off64_t offset, off64_t size) { return allocate(file, 0, offset, size) == 0 ? 0 : errno; }

/* ---- data ---- */

/* Records a write at `offset`, and its sync if the descriptor was opened for synchronous writes. */
static void append_buffers(int file, uint64_t inode, int64_t offset, const struct iovec *parts, int count, size_t size) {
    int before = errno;
    for (int i = 0; i < count && size > 0; i++) {
        size_t part = parts[i].iov_len < size ? parts[i].iov_len : size;
        append('W', inode, offset, parts[i].iov_base, part, NULL);
        offset += (int64_t)part;
        size -= part;
    }
    if (fcntl(file, F_GETFL) & O_DSYNC) /* a bit of O_SYNC, too */
        append('S', inode, 0, NULL, 0, NULL);
    errno = before;
}

/* Records the data that the kernel copied into a file. */
static void append_copied(int file, uint64_t inode, int64_t offset, size_t size) {
    char link[64], data[CHUNK];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    int reader = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    while (reader >= 0 && size > 0) {
        ssize_t part = pread(reader, data, size < CHUNK ? size : CHUNK, offset);
        if (part <= 0)
            break;
        struct iovec one = {data, (size_t)part};
        append_buffers(file, inode, offset, &one, 1, (size_t)part);
        offset += part;
        size -= (size_t)part;
    }
    if (reader < 0 || size > 0)
        give_up("cannot read what was copied");
    syscall(SYS_close, reader);
}

static ssize_t write_here(int file, const struct iovec *parts, int count) {
    uint64_t inode = followed(file);
    if (!inode)
        return syscall(SYS_writev, file, parts, count);
    pthread_mutex_lock(&lock);
    ssize_t written = syscall(SYS_writev, file, parts, count);
    if (written > 0)
        append_buffers(file, inode, lseek(file, 0, SEEK_CUR) - written, parts, count, (size_t)written);
    pthread_mutex_unlock(&lock);
    return written;
}

static ssize_t write_there(int file, const struct iovec *parts, int count, off_t offset, int flags) {
    uint64_t inode = followed(file);
    if (!inode)
        return syscall(SYS_pwritev2, file, parts, count, offset, 0, flags);
    pthread_mutex_lock(&lock);
    ssize_t written = syscall(SYS_pwritev2, file, parts, count, offset, 0, flags);
    if (written > 0 && flags & ~RWF_DSYNC)
        append_path('!', inode, "pwritev2 with flags");
    if (written > 0)
        append_buffers(file, inode, offset < 0 ? lseek(file, 0, SEEK_CUR) - written : offset, parts, count,
                       (size_t)written);
    if (written > 0 && flags & RWF_DSYNC)
        append('S', inode, 0, NULL, 0, NULL);
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t write(int file, const void *data, size_t size) {
    if (!followed(file))
        return syscall(SYS_write, file, data, size);
    struct iovec one = {(void *)data, size};
    return write_here(file, &one, 1);
}
ssize_t writev(int file, const struct iovec *parts, int count) { return write_here(file, parts, count); }
ssize_t pwrite(int file, const void *data, size_t size, off_t offset) {
    struct iovec one = {(void *)data, size};
    return write_there(file, &one, 1, offset, 0);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) {
    struct iovec one = {(void *)data, size};
    return write_there(file, &one, 1, offset, 0);
}
ssize_t pwritev(int file, const struct iovec *parts, int count, off_t offset) {
    return write_there(file, parts, count, offset, 0);
}
ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t offset) {
    return write_there(file, parts, count, offset, 0);
}
ssize_t pwritev2(int file, const struct iovec *parts, int count, off_t offset, int flags) {
    return write_there(file, parts, count, offset, flags);
}
ssize_t pwritev64v2(int file, const struct iovec *parts, int count, off64_t offset, int flags) {
    return write_there(file, parts, count, offset, flags);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags) {
    uint64_t inode = followed(to);
    if (!inode)
        return syscall(SYS_copy_file_range, from, from_at, to, to_at, size, flags);
    pthread_mutex_lock(&lock);
    ssize_t copied = syscall(SYS_copy_file_range, from, from_at, to, to_at, size, flags);
    if (copied > 0)
        append_copied(to, inode, (to_at ? *to_at : lseek(to, 0, SEEK_CUR)) - copied, (size_t)copied);
    pthread_mutex_unlock(&lock);
    return copied;
}

static ssize_t send_file(int to, int from, off_t *from_at, size_t size) {
    uint64_t inode = followed(to);
    if (!inode)
        return syscall(SYS_sendfile, to, from, from_at, size);
    pthread_mutex_lock(&lock);
    ssize_t copied = syscall(SYS_sendfile, to, from, from_at, size);
    if (copied > 0)
        append_copied(to, inode, lseek(to, 0, SEEK_CUR) - copied, (size_t)copied);
    pthread_mutex_unlock(&lock);
    return copied;
}

ssize_t sendfile(int to, int from, off_t *from_at, size_t size) { return send_file(to, from, from_at, size); }
ssize_t sendfile64(int to, int from, off64_t *from_at, size_t size) { return send_file(to, from, from_at, size); }

/* ---- names ---- */

static int make_directory(int at, const char *path, mode_t mode) {
    char buffer[PATH_MAX];
    const char *name = below_root(at, path, buffer);
    if (!name)
        return (int)syscall(SYS_mkdirat, at, path, mode);
    pthread_mutex_lock(&lock);
    int outcome = (int)syscall(SYS_mkdirat, at, path, mode);
    if (outcome == 0) {
        uint64_t inode = inode_of(name);
        remember(inode);
        append_path('D', inode, name);
    }
    pthread_mutex_unlock(&lock);
    return outcome;
}

int mkdir(const char *path, mode_t mode) { return make_directory(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return make_directory(at, path, mode); }

static int make_link(int from, const char *old, int to, const char *new, int flags) {
    char buffer[PATH_MAX];
    const char *name = below_root(to, new, buffer);
    if (!name)
        return (int)syscall(SYS_linkat, from, old, to, new, flags);
    pthread_mutex_lock(&lock);
    int outcome = (int)syscall(SYS_linkat, from, old, to, new, flags);
    if (outcome == 0) {
        uint64_t inode = inode_of(name);
        if (is_known(inode))
            append_path('L', inode, name);
        else
            append_path('!', inode, "a file from elsewhere was linked");
    }
    pthread_mutex_unlock(&lock);
    return outcome;
}

int link(const char *old, const char *new) { return make_link(AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int from, const char *old, int to, const char *new, int flags) {
    return make_link(from, old, to, new, flags);
}

static int rename_at(int from, const char *old, int to, const char *new, unsigned flags) {
    char buffers[2][PATH_MAX];
    const char *source = below_root(from, old, buffers[0]), *target = below_root(to, new, buffers[1]);
    if (!source && !target)
        return (int)syscall(SYS_renameat2, from, old, to, new, flags);
    pthread_mutex_lock(&lock);
    bool is_same = source && target && inode_of(source) == inode_of(target); /* then nothing happens */
    int outcome = (int)syscall(SYS_renameat2, from, old, to, new, flags);
    if (outcome == 0 && !is_same) {
        if (source && target && !(flags & ~RENAME_NOREPLACE))
            append('R', 0, 0, source, strlen(source), target);
        else
            append_path('!', 0, "a file was moved into or out of the directory, or exchanged");
    }
    pthread_mutex_unlock(&lock);
    return outcome;
}

int rename(const char *old, const char *new) { return rename_at(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return rename_at(from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return rename_at(from, old, to, new, flags);
}

static int remove_at(int at, const char *path, int flags) {
    char buffer[PATH_MAX];
    const char *name = below_root(at, path, buffer);
    if (!name)
        return (int)syscall(SYS_unlinkat, at, path, flags);
    pthread_mutex_lock(&lock);
    int outcome = (int)syscall(SYS_unlinkat, at, path, flags);
    if (outcome == 0)
        append_path('U', 0, name);
    pthread_mutex_unlock(&lock);
    return outcome;
}

int unlink(const char *path) { return remove_at(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return remove_at(at, path, flags); }
int rmdir(const char *path) { return remove_at(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    int outcome = remove_at(AT_FDCWD, path, 0);
    return outcome != 0 && errno == EISDIR ? rmdir(path) : outcome;
}

/* ---- the disk ---- */

/* Syncs are recorded, but not executed: this machine keeps its power, and the model knows what was synced. */
static int sync_file(long number, int file) {
    uint64_t inode = followed(file);
    if (!inode)
        return (int)syscall(number, file);
    pthread_mutex_lock(&lock);
    append('S', inode, 0, NULL, 0, NULL);
    pthread_mutex_unlock(&lock);
    return 0;
}

int fsync(int file) { return sync_file(SYS_fsync, file); }
int fdatasync(int file) { return sync_file(SYS_fdatasync, file); }

static int sync_everything(long number, int file) {
    if (trace < 0)
        return (int)syscall(number, file);
    pthread_mutex_lock(&lock);
    append('S', 0, 0, NULL, 0, NULL);
    pthread_mutex_unlock(&lock);
    return 0;
}

void sync(void) { sync_everything(SYS_sync, 0); }
int syncfs(int file) { return sync_everything(SYS_syncfs, file); }

/* Called by the process itself: writes a text into the trace. */
void power_cut_mark(const char *text) {
    if (trace < 0)
        return;
    pthread_mutex_lock(&lock);
    append_path('M', 0, text);
    pthread_mutex_unlock(&lock);
}
