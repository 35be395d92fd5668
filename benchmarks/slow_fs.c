/* A pass-through file system that models a shared one: every operation on names and attributes takes a while and is
 * counted, and the kernel keeps names and attributes for a while, as clients of NFS and Lustre do.
 *
 * SLOW_BASE: the directory that is passed through; SLOW_US: microseconds added to an operation; SLOW_KEPT_S: seconds for
 * which names are kept; SLOW_COUNT: the file to which SIGUSR1 writes the number of operations so far. With -s it serves one
 * request at a time. What is read and written takes no more time than below.
 * SLOW_SERVER: a file that several mounts share, the nodes of one server: SLOW_US is the time of that server then, which
 * serves one operation of all mounts at a time; SLOW_FAR_US: microseconds of the network, added to each operation before.
 * Built by benchmarks/slow.py against libfuse 3 (the package libfuse3-dev of Debian).
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static char base[PATH_MAX];
static const char *count_file;
static const char *server;
static unsigned delay_us, far_us;
static double kept_s;
static atomic_long operations;

static void delayed(void) {
  operations++;
  if (far_us) usleep(far_us);
  int turn = server ? open(server, O_RDONLY | O_CLOEXEC) : -1;
  if (turn >= 0) flock(turn, LOCK_EX);
  if (delay_us) usleep(delay_us);
  if (turn >= 0) close(turn);
}

static const char *below(const char *path, char *out) {
  snprintf(out, 2 * PATH_MAX, "%s%s", base, path);
  return out;
}

static int get_attributes(const char *path, struct stat *status, struct fuse_file_info *file) {
  char real[2 * PATH_MAX];
  (void)file;
  delayed();
  return lstat(below(path, real), status) ? -errno : 0;
}

static int read_link(const char *path, char *text, size_t size) {
  char real[2 * PATH_MAX];
  delayed();
  ssize_t length = readlink(below(path, real), text, size - 1);
  if (length < 0) return -errno;
  text[length] = 0;
  return 0;
}

static int open_file(const char *path, struct fuse_file_info *file) {
  char real[2 * PATH_MAX];
  delayed();
  int handle = open(below(path, real), file->flags & ~O_NOFOLLOW);
  if (handle < 0) return -errno;
  file->fh = (uint64_t)handle;
  file->keep_cache = 1;
  return 0;
}

static int read_file(const char *path, char *data, size_t size, off_t at, struct fuse_file_info *file) {
  (void)path;
  ssize_t length = pread((int)file->fh, data, size, at);
  return length < 0 ? -errno : (int)length;
}

static int write_file(const char *path, const char *data, size_t size, off_t at, struct fuse_file_info *file) {
  (void)path;
  ssize_t length = pwrite((int)file->fh, data, size, at);
  return length < 0 ? -errno : (int)length;
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *file) {
  char real[2 * PATH_MAX];
  delayed();
  int handle = open(below(path, real), file->flags | O_CREAT, mode);
  if (handle < 0) return -errno;
  file->fh = (uint64_t)handle;
  return 0;
}

/* Operations that change names and attributes: wait, then the same below. */
#define CHANGES(name, call, ...)                            \
  static int name(const char *path, __VA_ARGS__) {          \
    char real[2 * PATH_MAX];                                \
    delayed();                                              \
    return (call) ? -errno : 0;                             \
  }
#define HERE below(path, real)

CHANGES(make_folder, mkdir(HERE, mode), mode_t mode)
CHANGES(set_mode, ((void)file, chmod(HERE, mode)), mode_t mode, struct fuse_file_info *file)
CHANGES(set_owner, ((void)file, lchown(HERE, user, group)), uid_t user, gid_t group, struct fuse_file_info *file)
CHANGES(set_size, ((void)file, truncate(HERE, size)), off_t size, struct fuse_file_info *file)
CHANGES(set_times, ((void)file, utimensat(AT_FDCWD, HERE, times, AT_SYMLINK_NOFOLLOW)), const struct timespec times[2],
        struct fuse_file_info *file)
CHANGES(sync_file, ((void)HERE, (void)data_only, fsync((int)file->fh)), int data_only, struct fuse_file_info *file)

static int remove_file(const char *path) {
  char real[2 * PATH_MAX];
  delayed();
  return unlink(HERE) ? -errno : 0;
}

static int remove_folder(const char *path) {
  char real[2 * PATH_MAX];
  delayed();
  return rmdir(HERE) ? -errno : 0;
}

static int make_link(const char *leads, const char *path) {
  char real[2 * PATH_MAX];
  delayed();
  return symlink(leads, HERE) ? -errno : 0;
}

static int link_file(const char *from, const char *path) {
  char real[2 * PATH_MAX], old[2 * PATH_MAX];
  delayed();
  return link(below(from, old), HERE) ? -errno : 0;
}

static int rename_file(const char *from, const char *path, unsigned flags) {
  char real[2 * PATH_MAX], old[2 * PATH_MAX];
  delayed();
  return renameat2(AT_FDCWD, below(from, old), AT_FDCWD, HERE, flags) ? -errno : 0;
}

static int release_file(const char *path, struct fuse_file_info *file) {
  (void)path;
  close((int)file->fh);
  return 0;
}

static int read_folder(const char *path, void *into, fuse_fill_dir_t add, off_t at, struct fuse_file_info *file,
                       enum fuse_readdir_flags flags) {
  char real[2 * PATH_MAX];
  (void)at, (void)file, (void)flags;
  delayed();
  DIR *folder = opendir(below(path, real));
  if (!folder) return -errno;
  for (struct dirent *entry; (entry = readdir(folder));) {
    struct stat status = {.st_ino = entry->d_ino, .st_mode = (mode_t)entry->d_type << 12};
    if (add(into, entry->d_name, &status, 0, 0)) break;
  }
  closedir(folder);
  return 0;
}

static int file_system(const char *path, struct statvfs *status) {
  char real[2 * PATH_MAX];
  return statvfs(below(path, real), status) ? -errno : 0;
}

static void report(int signal) {
  char text[32];
  (void)signal;
  int file = open(count_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  int length = snprintf(text, sizeof text, "%ld\n", atomic_load(&operations));
  if (write(file, text, (size_t)length) < length) unlink(count_file);
  close(file);
}

static void *start(struct fuse_conn_info *connection, struct fuse_config *config) {
  (void)connection;
  config->attr_timeout = config->entry_timeout = config->negative_timeout = kept_s;
  config->kernel_cache = 1;
  config->use_ino = 1; /* the links of a file are one file */
  signal(SIGUSR1, report);
  return NULL;
}

static const struct fuse_operations calls = {
    .getattr = get_attributes, .readlink = read_link, .open = open_file, .read = read_file,
    .release = release_file, .readdir = read_folder, .statfs = file_system, .init = start, .write = write_file,
    .create = create_file, .mkdir = make_folder, .chmod = set_mode, .chown = set_owner, .truncate = set_size,
    .utimens = set_times, .fsync = sync_file, .unlink = remove_file, .rmdir = remove_folder, .symlink = make_link,
    .link = link_file, .rename = rename_file,
};

int main(int count, char **words) {
  const char *from = getenv("SLOW_BASE"), *microseconds = getenv("SLOW_US"), *kept = getenv("SLOW_KEPT_S");
  count_file = getenv("SLOW_COUNT");
  if (!from || !microseconds || !kept || !count_file || !realpath(from, base)) {
    fprintf(stderr, "slow_fs: SLOW_BASE, SLOW_US, SLOW_KEPT_S and SLOW_COUNT have to be set\n");
    return 2;
  }
  kept_s = atof(kept);
  delay_us = (unsigned)atol(microseconds);
  server = getenv("SLOW_SERVER");
  if (getenv("SLOW_FAR_US")) far_us = (unsigned)atol(getenv("SLOW_FAR_US"));
  return fuse_main(count, words, &calls, NULL);
}
