/* A network file system that shows changes late, as a library that is loaded before others.
 *
 * Processes with one DELAYED_NODE, or each process alone, are a client, which sees its own changes at
 * once. What another client makes below DELAYED_ROOT can't be seen for DELAYED_MS milliseconds: a file
 * that it created, linked or renamed to a name is not there, or is the file that had the name before,
 * and folders are listed without it. What the server decides is right at once, as with NFS: a name is taken once (O_EXCL, link, mkdir,
 * rename without replacing), and the client that was refused it sees the file from then on; locks hold, and
 * bytes of an open file are there. A deleted file is gone at once.
 *
 * Locks of whole files are there, unless DELAYED_LOCKS is `none`.
 *
 * Notes of what was made when and by whom are in DELAYED_NOTES, a folder outside of the root.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))real(#name))

/* This client: of one that is not named, the process alone. */
static const char *node(void)
{
    static __thread char own[32];
    const char *named = getenv("DELAYED_NODE");
    if (!named) snprintf(own, sizeof own, "%d", getpid());
    return named ? named : own;
}

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

static int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000ll + time.tv_nsec / 1000000;
}

/* The path as the server knows it, if it is below the root: links of folders are resolved. */
static int below_root(int folder, const char *path, char *whole)
{
    const char *root = getenv("DELAYED_ROOT");
    char joined[2 * PATH_MAX], parent[PATH_MAX], place[64];
    if (!root || !path || !*path || strlen(path) >= PATH_MAX / 2) return 0;
    if (*path == '/' || folder == AT_FDCWD) {
        snprintf(joined, sizeof joined, "%s", path);
    } else {
        snprintf(place, sizeof place, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(place, parent, PATH_MAX / 2);
        if (length < 0) return 0;
        parent[length] = 0;
        snprintf(joined, sizeof joined, "%s/%s", parent, path);
    }
    char *slash = strrchr(joined, '/');
    const char *name = slash ? slash + 1 : joined;
    if (slash) *slash = 0;
    if (!realpath(slash ? (*joined ? joined : "/") : ".", parent)) return 0;
    if (snprintf(whole, PATH_MAX, "%s/%s", parent, name) >= PATH_MAX) return 0;
    size_t length = strlen(root);
    return strncmp(whole, root, length) == 0 && whole[length] == '/';
}

/* The file that holds something of a path: what was made (`made`), or the file before (`old`). */
static void note_of(const char *whole, const char *what, char *note)
{
    uint64_t hash = 14695981039346656037ull;
    for (const char *letter = whole; *letter; letter++) hash = (hash ^ (uint8_t)*letter) * 1099511628211ull;
    snprintf(note, PATH_MAX, "%s/%016llx.%s", getenv("DELAYED_NOTES"), (unsigned long long)hash, what);
}

/* Writes down that this client makes a path, and keeps the file that has its name. */
static void making(const char *whole)
{
    char note[PATH_MAX], old[PATH_MAX], beside[PATH_MAX + 32];
    note_of(whole, "old", old);
    unlink(old);
    (void)!linkat(AT_FDCWD, whole, AT_FDCWD, old, 0);
    note_of(whole, "made", note);
    snprintf(beside, sizeof beside, "%s.%ld", note, syscall(SYS_gettid));
    int file = syscall(SYS_openat, AT_FDCWD, beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) abort();
    dprintf(file, "%lld %s\n", (long long)now_ms(), node());
    close(file);
    if (syscall(SYS_renameat2, AT_FDCWD, beside, AT_FDCWD, note, 0)) abort();
}

/* Others that give a name wait for each other, so that the note is of the one who succeeds. */
static int begin(const char *whole)
{
    char lock[PATH_MAX];
    note_of(whole, "lock", lock);
    int held = syscall(SYS_openat, AT_FDCWD, lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (held < 0 || syscall(SYS_flock, held, LOCK_EX)) abort();
    return held;
}

/* The server has told this client of the file, in whichever way it answered. */
static int end(const char *whole, int held, int result)
{
    int error = errno;
    char what[80], note[PATH_MAX];
    snprintf(what, sizeof what, "seen.%s", node());
    note_of(whole, what, note);
    int seen = syscall(SYS_openat, AT_FDCWD, note, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (seen < 0) abort();
    dprintf(seen, "%lld\n", (long long)now_ms());
    close(seen);
    close(held);
    errno = error;
    return result;
}

static int is_there(int folder, const char *path)
{
    struct stat found;
    return syscall(SYS_newfstatat, folder, path, &found, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The time in a note, and the client in one of a file that was made; false if there is none. */
static int noted(const char *whole, const char *what, long long *time, char *maker)
{
    char note[PATH_MAX], text[128] = "";
    note_of(whole, what, note);
    int file = syscall(SYS_openat, AT_FDCWD, note, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return 0;
    int is_read = read(file, text, sizeof text - 1) > 0;
    close(file);
    return is_read && sscanf(text, "%lld %63s", time, maker) >= 1;
}

/* True if this client can't see yet that another made the path. */
static int is_hidden(const char *whole)
{
    char what[80], maker[64];
    long long made, seen;
    if (!noted(whole, "made", &made, maker) || strcmp(maker, node()) == 0) return 0;
    snprintf(what, sizeof what, "seen.%s", node());
    if (noted(whole, what, &seen, maker) && seen >= made) return 0;
    return now_ms() - made < atoll(getenv("DELAYED_MS"));
}

/* The path that a lookup finds: its own, or that of the file before; none if nothing is there. */
static const char *looked_up(int folder, const char *path, char *room)
{
    char whole[PATH_MAX];
    if (!below_root(folder, path, whole) || !is_hidden(whole)) return path;
    note_of(whole, "old", room);
    if (is_there(AT_FDCWD, room)) return room;
    errno = ENOENT;
    return NULL;
}

static int opened(int folder, const char *path, int flags, mode_t mode)
{
    char room[PATH_MAX], whole[PATH_MAX];
    if (getenv("DELAYED_NODE") && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) {
        /* Machines tell each other apart by it. */
        snprintf(room, sizeof room, "%s/boot.%s", getenv("DELAYED_NOTES"), node());
        path = room;
    } else if (flags & O_CREAT && below_root(folder, path, whole)) {
        int held = begin(whole);
        if (!is_there(folder, path)) making(whole);
        return end(whole, held, syscall(SYS_openat, folder, path, flags, mode));
    } else if (!(flags & (O_CREAT | O_DIRECTORY))) {
        path = looked_up(folder, path, room);
        if (!path) return -1;
    }
    return syscall(SYS_openat, folder, path, flags, mode);
}

#define OPEN(name, ...)                                   \
    {                                                     \
        mode_t mode = 0;                                  \
        if (flags & (O_CREAT | __O_TMPFILE)) {            \
            va_list more;                                 \
            va_start(more, flags);                        \
            mode = va_arg(more, mode_t);                  \
            va_end(more);                                 \
        }                                                 \
        return opened(__VA_ARGS__, flags, mode);          \
    }

int open(const char *path, int flags, ...) OPEN(open, AT_FDCWD, path)
int open64(const char *path, int flags, ...) OPEN(open64, AT_FDCWD, path)
int openat(int folder, const char *path, int flags, ...) OPEN(openat, folder, path)
int openat64(int folder, const char *path, int flags, ...) OPEN(openat64, folder, path)

int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict found)
{
    char room[PATH_MAX];
    /* Some ask with no path at all whether the call is there. */
    const char *volatile asked = path;
    if (asked && *asked && !(asked = looked_up(folder, path, room))) return -1;
    return syscall(SYS_statx, folder, asked, flags, mask, found);
}

#define STAT(function, kind)                                                                    \
    int function(const char *restrict path, struct kind *restrict found)                        \
    {                                                                                           \
        char room[PATH_MAX];                                                                    \
        path = looked_up(AT_FDCWD, path, room);                                                 \
        return path ? REAL(function)(path, found) : -1;                                         \
    }
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)

int access(const char *path, int mode)
{
    char room[PATH_MAX];
    path = looked_up(AT_FDCWD, path, room);
    return path ? REAL(access)(path, mode) : -1;
}

int linkat(int from, const char *source, int to, const char *path, int flags)
{
    char whole[PATH_MAX];
    if (!below_root(to, path, whole)) return syscall(SYS_linkat, from, source, to, path, flags);
    int held = begin(whole);
    if (!is_there(to, path)) making(whole);
    return end(whole, held, syscall(SYS_linkat, from, source, to, path, flags));
}

int link(const char *source, const char *path) { return linkat(AT_FDCWD, source, AT_FDCWD, path, 0); }

int renameat2(int from, const char *source, int to, const char *path, unsigned flags)
{
    char whole[PATH_MAX];
    if (!below_root(to, path, whole)) return syscall(SYS_renameat2, from, source, to, path, flags);
    int held = begin(whole);
    if (flags == 0 || !is_there(to, path)) making(whole);
    return end(whole, held, syscall(SYS_renameat2, from, source, to, path, flags));
}

int renameat(int from, const char *source, int to, const char *path)
{
    return renameat2(from, source, to, path, 0);
}

int rename(const char *source, const char *path)
{
    return renameat2(AT_FDCWD, source, AT_FDCWD, path, 0);
}

int flock(int file, int operation)
{
    const char *locks = getenv("DELAYED_LOCKS");
    if (!locks || strcmp(locks, "none") != 0) return syscall(SYS_flock, file, operation);
    errno = ENOLCK;
    return -1;
}

struct dirent64 *readdir64(DIR *folder)
{
    struct dirent64 *entry;
    char whole[PATH_MAX];
    /* At the end callers tell by it that there was no error. */
    int error = errno;
    while ((errno = error, entry = REAL(readdir64)(folder))) {
        int is_file = entry->d_type == DT_REG;
        if (!is_file || !below_root(dirfd(folder), entry->d_name, whole)) break;
        char old[PATH_MAX];
        note_of(whole, "old", old);
        if (!is_hidden(whole) || is_there(AT_FDCWD, old)) break;
    }
    return entry;
}
