/* A pass-through file system that models a shared one: every operation on names and attributes takes a while and is
 * counted, and the kernel keeps names and attributes for a while, as clients of NFS and Lustre do.
 *
 * SLOW_BASE: the directory that is passed through; SLOW_US: microseconds added to an operation; SLOW_KEPT_S: seconds for
 * which names are kept; SLOW_COUNT: the file to which SIGUSR1 writes the number of operations so far. Read-only. With -s it serves one request at a time.
 * Built by benchmarks/images.py against libfuse 3 (the package libfuse3-dev of Debian).
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
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static char base[PATH_MAX];
static const char *count_file;
static unsigned delay_us;
static double kept_s;
static atomic_long operations;

static void delayed(void) {
  operations++;
  if (delay_us) usleep(delay_us);
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
  signal(SIGUSR1, report);
  return NULL;
}

static const struct fuse_operations calls = {
    .getattr = get_attributes, .readlink = read_link, .open = open_file, .read = read_file,
    .release = release_file, .readdir = read_folder, .statfs = file_system, .init = start,
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
  return fuse_main(count, words, &calls, NULL);
}
