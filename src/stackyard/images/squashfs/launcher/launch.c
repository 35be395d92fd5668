/* The program behind every command of a revision whose files are in one image, image.sqsh.
 *
 * The revision's prefix on disk is a tree of stubs: `.stub`, and in bin/ one link to this program per command. Where the
 * image is mounted on the prefix the stubs are hidden and nothing here runs. Where it is not, this program enters a user
 * and mount namespace in which it is, and executes the same path again, with the same arguments:
 *
 *   1. this user's namespace of this job step, if one of its file system servers is alive: join it;
 *   2. else a new one, with a file system server (squashfuse_ll) in it;
 *   3. where there can be none: fusermount3, on a prefix that belongs to this user;
 *   4. else Apptainer or Singularity mounts it, for this command (apptainer.sh, which is a text in this program).
 *
 * One namespace serves all images of a step (STACKYARD_IMAGES lists the revisions whose modules are loaded), because
 * processes of one user in two user namespaces cannot attach to each other's memory, which MPI within a node needs.
 * The server ends by itself when no file of its image has been open for a while; the kernel counts.
 *
 * Started by its own name it runs a command within: launch COMMAND [ARGUMENT...].
 * Exit status: that of the command; 4: the image cannot be mounted here; 126, 127: as a shell has them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "apptainer.h" /* const char apptainer_sh[]: the text of apptainer.sh */

#define NAME 256
#define TEXT 4096
#define LIMIT_S 60  /* for another process that mounts, and for a mount */
#define IDLE_S "300" /* until an image that no process uses is unmounted */
#define SERVERS 64

static char root[PATH_MAX];    /* the revision */
static char program[PATH_MAX]; /* the file system server */
static int serving;            /* a file system server that nobody else knows of yet */
static int is_blank;           /* whether an image was mounted in which nothing can be read */
static int space = -1;         /* the caller's mount namespace */
static void (*on_child)(int);  /* what the caller does about SIGCHLD */

static void fail(int status, const char *hint, const char *format, ...) {
  va_list words;
  fputs("stackyard: ", stderr);
  va_start(words, format);
  vfprintf(stderr, format, words);
  va_end(words);
  fputc('\n', stderr);
  if (hint) fprintf(stderr, "  hint: %s\n", hint);
  if (serving > 0) kill(serving, SIGKILL);
  _exit(status);
}

static void join_path(char *to, const char *folder, const char *name) {
  if (snprintf(to, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX) fail(126, NULL, "path too long: %s/%s", folder, name);
}

/* Whether the stubs of a revision are visible: its image is not mounted here. lstat and not access: looking the name up
 * brings its attributes, while rights are asked of a shared file system once more. */
static int is_stub(const char *revision) {
  char path[PATH_MAX];
  struct stat found;
  join_path(path, revision, "prefix/.stub");
  return lstat(path, &found) == 0;
}

/* Whether the server of a mount on the prefix has ended. Names may still be found, in the kernel's cache. */
static int is_stale(const char *revision) {
  char path[PATH_MAX];
  struct statfs about;
  join_path(path, revision, "prefix");
  return statfs(path, &about) && errno == ENOTCONN;
}

/* Whether the directory is there that the image is mounted on. */
static int is_there(const char *revision) {
  char path[PATH_MAX];
  struct stat found;
  join_path(path, revision, "prefix");
  return lstat(path, &found) == 0 || errno != ENOENT;
}

/* What this program needs of its process, and the command is not to notice: open standard streams, or what is opened
 * next would be one of them; and children that can be waited for, which a caller that ignores SIGCHLD takes away. */
static void settle(void) {
  int file = open("/dev/null", O_RDWR | O_CLOEXEC);
  while (file >= 0 && file < 3) file = fcntl(file, F_DUPFD_CLOEXEC, file + 1);
  if (file >= 3) close(file);
  on_child = signal(SIGCHLD, SIG_DFL);
}

static void give_back(void) {
  signal(SIGCHLD, on_child);
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec + at.tv_nsec / 1e9;
}

static void pause_ms(long ms) {
  struct timespec span = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&span, NULL);
}

static ssize_t slurp(const char *path, char *to, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  size_t all = 0;
  ssize_t one;
  while (all < size - 1 && (one = read(file, to + all, size - 1 - all)) > 0) all += one;
  close(file);
  to[all] = 0;
  return all;
}

static char state; /* of the process that `started` has looked at last: a letter of proc(5) */

/* When a process began, in clock ticks since the machine did; 0: it is not there. A number alone may be another's now. */
static unsigned long long started(int pid) {
  char path[NAME], text[TEXT];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  if (slurp(path, text, sizeof text) <= 0) return 0;
  char *at = strrchr(text, ')');
  if (!at || at[1] != ' ' || at[2] == 'Z') return 0;
  state = at[2];
  at += 2;
  for (int field = 3; field < 22 && at; field++) at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL;
  return at ? strtoull(at, NULL, 10) : 0;
}

/* What to do about an error that is this process's and no file's; NULL: it is a file's. */
static const char *of_limits(int error) {
  if (error == EMFILE || error == ENFILE) return "raise the limit of open files: ulimit -n";
  if (error == EAGAIN) return "raise the limit of processes: ulimit -u";
  return error == ENOMEM ? "raise the limit of memory: ulimit -v" : NULL;
}

static const char *or_limits(int error, const char *hint) {
  const char *own = of_limits(error);
  return own ? own : hint;
}

#define WRITABLE "set STACKYARD_TMP to a directory on this node that you can write, and that has room"

/* The directory for notes about this user's namespaces: on the node, and nobody else's. */
static void open_folder(char *folder) {
  const char *above = getenv("STACKYARD_TMP");
  struct stat found;
  for (int i = 0; i < 10; i++) {
    char name[NAME];
    snprintf(name, sizeof name, i ? ".stackyard-images-%u.%d" : ".stackyard-images-%u", geteuid(), i);
    join_path(folder, above && *above == '/' ? above : "/tmp", name);
    if (mkdir(folder, 0700) && errno != EEXIST) break;
    if (!lstat(folder, &found) && S_ISDIR(found.st_mode) && found.st_uid == geteuid() && !(found.st_mode & 077)) return;
  }
  fail(4, WRITABLE, "cannot create a private directory in %s: %s", above && *above == '/' ? above : "/tmp", strerror(errno));
}

#ifdef ADOPTED /* original.c, for an adopted prefix: its image is seen at two paths */
#define IS_ADOPTED 1
static void show_at_original(void);
#else
#define IS_ADOPTED 0
#define show_at_original() (void)0
#endif

#ifdef CONTAINER /* container.c, for a wrapped image: it needs more than its mount */
static unsigned long long needed_bytes(void);
static int keep_other(const char *revision, int server);
static int is_alive(int pid);
static void arrive(const char *cwd);
static const char *own_path(const char *path, char **argv);
static void become(const char *own, const char *path, char **argv);
static void run_before(const char *path, char **argv, const char *own);
#define APPTAINER_WAY "sy_container"
#else
#define needed_bytes() 0ull
#define keep_other(revision, server) 0
#define is_alive(pid) 1
#define own_path(path, argv) path
#define become(own, path, argv)
#define run_before(path, argv, own)
#define arrive(cwd) \
  if (chdir(cwd) && errno != EACCES) fail(126, NULL, "cannot enter %s: %s", cwd, strerror(errno))
#define APPTAINER_WAY "sy_apptainer"
#endif

/* Open the caller's mount namespace. Each server keeps it open: the kernel gives the number of one that is gone to the
 * next, such as that of the next job with a /tmp of its own, which would join a server of the job before. */
static void hold_space(void) {
  int file = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  space = fcntl(file, F_DUPFD_CLOEXEC, 3);
  close(file);
}

static unsigned long long mixed(unsigned long long key, const char *text) {
  for (; text && *text; text++) key = (key ^ (unsigned char)*text) * 1099511628211ull;
  return key * 1099511628211ull;
}

/* What a namespace can be shared by: the mounts that the caller sees, and who is ended with it. A job step's cgroup is
 * cut after the step: below it every task may have its own. Where steps have no cgroup, STACKYARD_DIR tells launches
 * apart: at its end each ends all processes that have it. An adopted prefix has one of its own: another revision of it
 * is seen at the same path. */
static unsigned long long key_of(void) {
  unsigned long long key = 1469598103934665603ull;
  char text[TEXT * 4], *line, *rest = text;
  struct stat space;
  if (!stat("/proc/self/ns/mnt", &space)) key = (key ^ space.st_ino) * 1099511628211ull;
  key = mixed(key, getenv("STACKYARD_DIR"));
#ifdef CONTAINER
  key = mixed(mixed(key, getenv("STACKYARD_IMAGES")), getenv("HOME"));
#endif
#if defined CONTAINER || defined ADOPTED
  key = mixed(key, root);
#endif
  if (slurp("/proc/self/cgroup", text, sizeof text) < 0) return key;
  while ((line = strsep(&rest, "\n"))) {
    char *step = strstr(line, "/step_");
    size_t length = step ? (size_t)(step - line) + 1 + strcspn(step + 1, "/") : strlen(line);
    for (size_t i = 0; i < length; i++) key = (key ^ (unsigned char)line[i]) * 1099511628211ull;
  }
  return key;
}

static int lock_at(const char *path) {
  int note = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (note < 0) fail(4, or_limits(errno, WRITABLE), "cannot open %s: %s", path, strerror(errno));
  for (double until = now() + LIMIT_S; flock(note, LOCK_EX | LOCK_NB); pause_ms(2))
    if (now() > until) fail(4, "see whether a process hangs on a shared file system: fuser -v FILE",
                            "timed out after %d s waiting for another process that mounts an image: %s", LIMIT_S, path);
  return note;
}

/* Open and lock the note on this step's namespace. */
static int lock_note(const char *folder, char *path) {
  char name[NAME];
  snprintf(name, sizeof name, "%016llx", key_of());
  join_path(path, folder, name);
  return lock_at(path);
}

static int enter(int pid) {
  char path[NAME];
  snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
  int user = open(path, O_RDONLY | O_CLOEXEC);
  snprintf(path, sizeof path, "/proc/%d/ns/mnt", pid);
  int mounts = open(path, O_RDONLY | O_CLOEXEC);
  int done = user >= 0 && mounts >= 0 && !setns(user, CLONE_NEWUSER) && !setns(mounts, CLONE_NEWNS);
  if (user >= 0) close(user);
  if (mounts >= 0) close(mounts);
  return done;
}

/* A server that is stopped answers nobody: whoever reads a file of its image waits until it is killed. */
static void require_running(int pid) {
  if (state != 'T' && state != 't') return;
  fail(4, "let it go on: kill -CONT NUMBER; or end it: kill -KILL NUMBER, after which the next command mounts the image again",
       "an image of this job step cannot be read: its file system server (squashfuse_ll, process %d) is stopped", pid);
}

/* Join the namespace of a living server among those in the note. Of a line that begins with `+` the process is in the
 * namespace and no server; with `=` it is a server beside it, without which the namespace is of no use. */
static int join_note(int note) {
  char text[TEXT], *line, *rest = text;
  int pid, count = 0, pids[SERVERS];
  unsigned long long start;
  ssize_t size = pread(note, text, sizeof text - 1, 0);
  if (size <= 0) return 0;
  text[size] = 0;
  while ((line = strsep(&rest, "\n")) && count < SERVERS) {
    char kind = *line == '+' || *line == '=' ? *line++ : 0;
    if (sscanf(line, "%d %llu", &pid, &start) != 2 || !start) continue;
    int lives = started(pid) == start;
    if (kind == '=' && !lives) return 0;
    if (lives && kind != '+') require_running(pid);
    if (lives && kind != '=') pids[count++] = pid;
  }
  for (int i = 0; i < count; i++)
    if (is_alive(pids[i]) && enter(pids[i])) return 1;
  return 0;
}

static int put(const char *path, const char *text) {
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return -1;
  ssize_t done = write(file, text, strlen(text));
  close(file);
  return done < 0 ? -1 : 0;
}

/* A user namespace in which this user keeps the own numbers, and a mount namespace: what others mount is seen in it. */
static int make_namespace(void) {
  char user[NAME], group[NAME];
  snprintf(user, sizeof user, "%u %u 1", geteuid(), geteuid());
  snprintf(group, sizeof group, "%u %u 1", getegid(), getegid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) return -1;
  put("/proc/self/setgroups", "deny");
  return put("/proc/self/uid_map", user) || put("/proc/self/gid_map", group) ? -1 : 0;
}

/* Find a program of a file system. */
static int find_program(const char *name, char *to) {
  char text[sizeof apptainer_sh + NAME];
  if (*to) return 1;
  snprintf(text, sizeof text, "%s\nsy_server_program %s", apptainer_sh, name);
  FILE *out = popen(text, "re");
  if (out && fgets(to, PATH_MAX, out)) to[strcspn(to, "\n")] = 0;
  return out && !pclose(out) && *to;
}

static int find_server(void) {
  return find_program("squashfuse_ll", program);
}

/* Why no namespace with a server in it can be made here; NULL: one can. Tried in a child: nobody comes back from one. */
static const char *lacking(void) {
  struct stat found;
  int status = 0, device = open("/dev/fuse", O_RDWR | O_CLOEXEC), why = errno;
  int is_fuse = device >= 0 && !fstat(device, &found) && found.st_rdev == makedev(10, 229);
  if (device >= 0) close(device);
  if (!find_server()) return "squashfuse_ll not found";
  if (!is_fuse) return device < 0 && why != ENOENT ? "/dev/fuse cannot be opened" : "/dev/fuse not found";
  int child = fork();
  if (child == 0) _exit(make_namespace() || mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) ? errno & 127 : 0);
  if (child < 0 || waitpid(child, &status, 0) != child || status == 0) return NULL;
  why = WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
  return why == ENOSPC ? "user namespaces are switched off on this machine, or all in use (user.max_user_namespaces)" : "no user namespace that may mount";
}

/* Give the right to mount, which this process has in its own user namespace, to the program that it becomes. */
static void keep_rights(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct caps[2];
  if (syscall(SYS_capget, &header, caps)) return;
  for (int i = 0; i < 2; i++) caps[i].inheritable = caps[i].permitted;
  syscall(SYS_capset, &header, caps);
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0);
}

/* Seconds until an image that no process uses is unmounted. */
static const char *idle_s(void) {
  const char *idle = getenv("STACKYARD_IMAGE_IDLE_S");
  if (!idle || !*idle) return IDLE_S;
  if (idle[strspn(idle, "0123456789")]) fail(4, "give whole seconds, or unset it", "invalid STACKYARD_IMAGE_IDLE_S: %s", idle);
  return idle;
}

/* Become the file system server of an image; without one fuse-overlayfs, with what it joins in the options. */
static void serve(const char *image, const char *prefix, const char *log, const char *more) {
  char options[NAME * 2];
  int nothing = open("/dev/null", O_RDWR), said = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
  keep_rights();
  setsid();
  dup2(nothing, 0);
  dup2(said >= 0 ? said : nothing, 1);
  dup2(said >= 0 ? said : nothing, 2);
  if (space >= 0 && space != 3) dup2(space, 3);
  if (space >= 0) fcntl(3, F_SETFD, 0);
  if (syscall(SYS_close_range, space >= 0 ? 4 : 3, ~0U, 0))
    for (int i = space >= 0 ? 4 : 3; i < 4096; i++) close(i);
  if (image && chdir("/")) _exit(127);
  snprintf(options, sizeof options, "ro,nosuid,nodev%s", more);
  unsetenv("LD_PRELOAD");
  unsetenv("LD_LIBRARY_PATH");
  if (image) execl(program, "squashfuse_ll", "-f", "-o", options, image, prefix, NULL);
  else execl(program, "fuse-overlayfs", "-f", "-o", options, prefix, NULL);
  dprintf(2, "%s: %s\n", program, strerror(errno));
  _exit(127);
}

/* Why an image cannot be mounted: a server mounts a truncated one too, in which nothing can be read. */
static const char *damage(const char *image) {
  struct stat found;
  unsigned char first[48];
  unsigned long long size = 0;
  int file = open(image, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT ? "not found" : strerror(errno);
  int known = !fstat(file, &found); /* first: to have read it makes its attributes old */
  ssize_t got = pread(file, first, sizeof first, 0);
  close(file);
  if (got < 0) return strerror(errno);
  if (got == (ssize_t)sizeof first && !memcmp(first + 32, "SIF_MAGIC", 9)) size = needed_bytes();
  else if (got == (ssize_t)sizeof first && !memcmp(first, "hsqs", 4))
    for (int i = 7; i >= 0; i--) size = size << 8 | first[40 + i];
  if (!size) return "not a SquashFS image";
  return known && (unsigned long long)found.st_size < size ? "it is truncated" : NULL;
}

/* The image of a revision: the copy on this node's own disk, where the launch has made one (--stage stack). */
static void image_of(char *to, const char *revision) {
  const char *staged = getenv("STACKYARD_STAGED_IMAGE"), *folder = getenv("STACKYARD_STAGE");
  if (staged && folder && *folder == '/' && !strcmp(staged, revision)) {
    join_path(to, folder, "image.sqsh");
    if (!damage(to)) return;
  }
  join_path(to, revision, "image.sqsh");
}

/* What is wrong with the image that a revision is to be used by; NULL: nothing. */
static const char *damage_of(const char *revision) {
  char image[PATH_MAX];
  image_of(image, revision);
  return damage(image);
}

static int is_denied(void) {
  char image[PATH_MAX];
  int before = errno;
  image_of(image, root);
  int denied = access(image, R_OK) && errno == EACCES;
  errno = before;
  return denied;
}

/* Mount the image of a revision; the process id of its server, or -1. What is wrong with an image is looked up only then:
 * a shared file system is not asked for it twice. Of a truncated one the tables at its end are missing, so either its
 * server ends, or looking up a name fails. */
static int mount_image(const char *revision, const char *log) {
  char image[PATH_MAX], prefix[PATH_MAX], options[NAME];
  image_of(image, revision);
  join_path(prefix, revision, "prefix");
  snprintf(options, sizeof options, ",timeout=%s", idle_s());
  if (!find_server()) return -1;
  int server = fork();
  if (server < 0) fail(4, of_limits(errno), "cannot start %s: %s", program, strerror(errno));
  if (server == 0) serve(image, prefix, log, options);
  for (double until = now() + LIMIT_S; server > 0 && now() < until; pause_ms(1)) {
    if (!is_stub(revision)) {
      if (errno == ENOENT && is_there(revision)) return server;
      is_blank = errno == ENOENT;
      umount2(prefix, MNT_DETACH);
      break;
    }
    if (waitpid(server, NULL, WNOHANG) == server) return -1;
  }
  if (server > 0) kill(server, SIGKILL);
  return -1;
}

/* Note a server, so that others join its namespace. `kind`: as in `join_note`, or 0. */
static void add_to_note(int note, char kind, int server) {
  char line[NAME] = {kind};
  int size = !!kind;
  size += snprintf(line + size, sizeof line - size, "%d %llu\n", server, started(server));
  void (*before)(int) = signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is then an error like others */
  errno = ENOSPC; /* of a part of a line nothing is said */
  int done = lseek(note, 0, SEEK_END) >= 0 && write(note, line, size) == size;
  signal(SIGXFSZ, before);
  if (done) return;
  serving = server;
  fail(4, WRITABLE, "cannot write the note that lets other commands share this mount: %s", strerror(errno));
}

#define STALE "start it in a new shell; if it is so there too: stackyard image unmount (see stackyard image status)"
#define DEAD "cannot read %s/prefix: the server of its mount has ended"
#define RESTORE "restore it from a copy, or move the revision away and deploy it again; if it is not yours, tell its owner"
#define UNREADABLE "ask its owner to let you read it: ls -l IMAGE, getfacl IMAGE"

/* The hint for what may be a damaged image. */
static const char *compare_hint(void) {
  static char text[PATH_MAX + NAME];
  const char *name = root + strlen(root);
  for (int above = 2; name > root && above; above -= *name == '/') name--;
  snprintf(text, sizeof text, "`stackyard verify %s` compares it with its record; if it differs, restore it from a copy, "
           "or move the revision away and deploy it again; if it is not yours, tell its owner", name + (*name == '/'));
  return text;
}

#define ABSENT "it is not in the image"

/* Why a file cannot be read; NULL: it can, or only this user may not. */
static const char *unreadable(const char *path) {
  static char block[1 << 16];
  struct stat found;
  ssize_t size = -1;
  int file = lstat(path, &found) ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return errno == ENOENT ? ABSENT : errno == EACCES ? NULL : strerror(errno);
  if (!fstat(file, &found) && !S_ISREG(found.st_mode)) size = 0;
  while (size && (size = read(file, block, sizeof block)) > 0);
  int why = errno;
  close(file);
  return size < 0 ? strerror(why) : NULL;
}

/* The program that the first line of a script names; NULL: it names none. */
static const char *interpreter_of(const char *path) {
  static char text[PATH_MAX];
  if (slurp(path, text, sizeof text) < 3 || text[0] != '#' || text[1] != '!') return NULL;
  char *start = text + 2 + strspn(text + 2, " \t");
  start[strcspn(start, " \t\n")] = 0;
  return start;
}

/* Why a command was not started, if that is by a damage of the image; NULL: nothing was found. */
static const char *damage_at(const char *path, int why) {
  char file[PATH_MAX], prefix[PATH_MAX];
  const char *bad = damage_of(root), *below;
  int is_name = !strchr(path, '/');
  join_path(prefix, root, "prefix/");
  join_path(file, prefix, is_name ? "bin" : "");
  if (bad) return bad;
  if (access(file, F_OK)) return "its files cannot be read";
  if (is_name && strlen(file) + strlen(path) < sizeof file - 1) strcat(strcat(file, "/"), path);
  else if (strncmp(path, prefix, strlen(prefix))) return NULL;
  else snprintf(file, sizeof file, "%s", path);
  if ((bad = unreadable(file))) return is_name && !strcmp(bad, ABSENT) ? NULL : bad;
  if (why == ENOEXEC) return "it is not a program";
  below = why == ENOENT ? interpreter_of(file) : NULL;
  return below && !strncmp(below, prefix, strlen(prefix)) ? unreadable(below) : NULL;
}

/* A command that could not be started in the image. */
static void not_started(const char *path) {
  int why = errno, status = why == ENOENT ? 127 : 126;
  char image[PATH_MAX];
  const char *bad = damage_at(path, why);
  image_of(image, root);
  if (bad) fail(status, compare_hint(), "%s: %s: the image %s may be damaged: %s", path, strerror(why), image, bad);
  fail(status, NULL, "%s: %s", path, strerror(why));
}

static void not_mounted(const char *why, const char *log) {
  char text[TEXT], image[PATH_MAX];
  errno = 0;
  const char *bad = damage_of(root);
  if (bad) fail(4, is_denied() ? UNREADABLE : or_limits(errno, RESTORE), "cannot mount %s/image.sqsh: %s", root, bad);
  image_of(image, root);
  if (is_blank) fail(4, compare_hint(), "cannot mount it: the image %s may be damaged: its files cannot be read", image);
  fprintf(stderr, "stackyard: cannot mount %s/image.sqsh: %s\n", root, why);
  if (slurp(log, text, sizeof text) > 0) fprintf(stderr, "%s", text);
  fail(4, "`stackyard image status` says which ways this machine has; root can mount it for all (`stackyard image autofs`)",
       "%s is not usable on this machine", root);
}

/* Take away the mount of a server that has ended without unmounting: nothing below it can be reached any more. One that
 * was there before this namespace cannot be taken away in it: an empty directory is put on it, which can be mounted on. */
static void clear_dead(const char *revision) {
  char prefix[PATH_MAX], stub[PATH_MAX];
  struct stat found;
  join_path(prefix, revision, "prefix");
  if (is_stale(revision) || (stat(prefix, &found) && errno != ENOENT && errno != EACCES)) umount2(prefix, MNT_DETACH);
  if (!is_stale(revision) || mount("stackyard", prefix, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64k")) return;
  join_path(stub, prefix, ".stub");
  int file = open(stub, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
  if (file >= 0) close(file);
}

/* Take away a dead mount in the caller's namespace: as root, or by fusermount3 one that this user has made. */
static void take_away(const char *revision) {
  char prefix[PATH_MAX];
  join_path(prefix, revision, "prefix");
  if (!umount2(prefix, MNT_DETACH)) return;
  int child = fork();
  if (child == 0) {
    int nothing = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) dup2(nothing, i);
    execle("/bin/sh", "sh", "-c", "exec fusermount3 -u -z -- \"$0\"", prefix, NULL,
           (char *[]){"PATH=/usr/bin:/bin:/usr/local/bin", NULL});
    _exit(127);
  }
  if (child > 0) waitpid(child, NULL, 0);
}

/* Whether the image of a revision has to be seen at a second path, which it has in a namespace of its own alone. */
static int was_adopted(const char *revision) {
  char path[PATH_MAX];
  struct stat found;
  join_path(path, revision, "lock/original");
  return !lstat(path, &found);
}

/* Let every other image whose module is loaded be in this namespace too. */
static void mount_others(int note, const char *log) {
  const char *listed = getenv("STACKYARD_IMAGES");
  char *list = listed ? strdup(listed) : NULL, *rest = list, *revision;
  while (rest && (revision = strsep(&rest, ":"))) {
    if (*revision != '/' || !strcmp(revision, root)) continue;
    if (!is_stub(revision)) clear_dead(revision);
    if (!is_stub(revision) || was_adopted(revision)) continue;
    int server = mount_image(revision, log);
    if (server > 0 && !keep_other(revision, server)) add_to_note(note, 0, server);
  }
  free(list);
}

/* In the container: take what was handed over. The arguments; the environment and the working directory are set. */
static char **taken(const char *number, const char **path) {
  if (is_stub(root)) fail(4, NULL, "Apptainer has not mounted %s/image.sqsh", root);
  if (!strcmp(number, "-")) _exit(0);
  struct stat found;
  int file = atoi(number);
  if (fstat(file, &found)) fail(4, NULL, "the container has not kept the open files of this program");
  char *text = malloc(found.st_size + 1), **argv;
  if (!text || pread(file, text, found.st_size, 0) != found.st_size) fail(126, NULL, "%s", strerror(errno));
  close(file);
  char *cwd = text, *at = cwd + strlen(cwd) + 1, *end = text + found.st_size;
  *path = at;
  at += strlen(at) + 1;
  int argc = atoi(at), count = 0;
  char **words = calloc(found.st_size + 2, sizeof *words);
  if (!words) fail(126, NULL, "%s", strerror(errno));
  for (at += strlen(at) + 1; at < end; at += strlen(at) + 1) {
    if (count == argc) count++; /* the end of the arguments */
    words[count++] = at;
  }
  argv = words;
  environ = words + argc + 1;
  arrive(cwd);
  return argv;
}

static void add_text(int file, const char *text) {
  size_t size = strlen(text) + 1;
  if (write(file, text, size) != (ssize_t)size) fail(126, NULL, "cannot hand over the command: %s", strerror(errno));
}

/* Let Apptainer run this program again where it has mounted the image: what is to be done is handed over in memory. */
static void by_apptainer(const char *folder, const char *log, const char *why, char **argv, const char *path) {
  char text[sizeof apptainer_sh + NAME], skeleton[PATH_MAX], number[NAME], *cwd = get_current_dir_name();
  int argc = 0, file = syscall(SYS_memfd_create, "call", 0);
  while (argv[argc]) argc++;
  snprintf(number, sizeof number, "%d", argc);
  add_text(file, cwd ? cwd : "/");
  add_text(file, path);
  add_text(file, number);
  for (char **word = argv; *word; word++) add_text(file, *word);
  for (char **word = environ; *word; word++) add_text(file, *word);
  join_path(skeleton, folder, "root");
  mkdir(skeleton, 0700);
  snprintf(number, sizeof number, "%d", file);
  setenv("STACKYARD_APPTAINER", number, 1);
  snprintf(text, sizeof text, "%s\n%s \"$@\"", apptainer_sh, APPTAINER_WAY);
  give_back();
  execl("/bin/sh", "sh", "-c", text, "sh", root, folder, log, why, NULL);
  fail(126, NULL, "/bin/sh: %s", strerror(errno));
}

static char noted[PATH_MAX]; /* the note of the namespace that this process has entered */

/* The server has ended after this process had entered its namespace: mount the image there once more. */
static int mount_again(void) {
  char log[PATH_MAX];
  int server;
  if (!*noted) return 0;
  int note = lock_at(noted);
  snprintf(log, sizeof log, "%.*s.log", PATH_MAX - 8, noted);
  clear_dead(root);
  if (is_stub(root)) {
    if ((server = mount_image(root, log)) < 0) not_mounted("its file system server ended", log);
    add_to_note(note, 0, server);
  }
  show_at_original();
  close(note);
  return 1;
}

#ifdef ADOPTED
#include "original.c"
#endif

#ifdef CONTAINER
#include "container.c"
#else
static void mount_here(char **argv, const char *asked_for) {
  char folder[PATH_MAX], path[PATH_MAX], log[PATH_MAX], *cwd = get_current_dir_name();
  struct stat prefix;
  open_folder(folder);
  hold_space();
  int note = lock_note(folder, path);
  snprintf(log, sizeof log, "%.*s.log", PATH_MAX - 8, path);
  int joined = join_note(note), alone = 0, server = 0;
  if (!joined && (ftruncate(note, 0) || unlink(log)) && errno != ENOENT) fail(4, NULL, "%s: %s", path, strerror(errno));
  const char *why = joined ? NULL : lacking();
  if (why) {
    join_path(path, root, "prefix");
    alone = !stat(path, &prefix) && prefix.st_uid == geteuid() && !IS_ADOPTED;
    if (damage_of(root)) not_mounted(why, log);
    if (!is_stub(root) && is_stale(root)) fail(4, STALE, DEAD, root);
    if (!alone || (is_stub(root) && mount_image(root, log) < 0)) by_apptainer(folder, log, why, argv, asked_for);
  } else if (!joined && make_namespace()) {
    not_mounted(strerror(errno), log);
  }
  if (!alone && !is_stub(root)) clear_dead(root);
  if (is_stub(root)) {
    if ((server = mount_image(root, log)) < 0) not_mounted("its file system server ended", log);
    add_to_note(note, 0, server);
  }
  if (!alone) mount_others(note, log);
  if (server > 0 && IS_ADOPTED) serving = server; /* it ends if the image cannot be used */
  show_at_original();
  serving = 0;
  close(note);
  if (!alone) snprintf(noted, sizeof noted, "%s", path);
  if (cwd && chdir(cwd) && errno != EACCES) fail(126, NULL, "cannot enter %s: %s", cwd, strerror(errno));
  free(cwd);
}
#endif

/* The path that was asked for: what the kernel executed; of a #! line that is the script, and argv[0] leads here. */
static const char *asked(char **argv, const char *own) {
  char leads[PATH_MAX];
  const char *executed = (const char *)getauxval(AT_EXECFN), *name = argv[0];
  if (!name || !strchr(name, '/') || (executed && !strcmp(name, executed))) return executed;
  return !realpath(name, leads) || strcmp(leads, own) ? executed : name;
}

/* Whether a path names the launcher itself and no link to it; only a path that ends as its own is looked at. */
static int is_itself(const char *path, const char *own) {
  struct stat found;
  const char *name = strrchr(path, '/'), *mine = strrchr(own, '/');
  return !strcmp(name ? name + 1 : path, mine ? mine + 1 : own) && !lstat(path, &found) && S_ISREG(found.st_mode);
}

int main(int argc, char **argv) {
  char own[PATH_MAX], leads[PATH_MAX], *end;
  settle();
  ssize_t size = readlink("/proc/self/exe", root, sizeof root - 1);
  if (size < 0) fail(4, "mount /proc: mount -t proc proc /proc", "cannot read /proc/self/exe: %s", strerror(errno));
  root[size] = 0;
  strcpy(own, root);
  const char *path = asked(argv, own);
  if (!path) fail(126, NULL, "cannot find out which command this is");
  become(own, path, argv);
  if ((end = strrchr(root, '/'))) *end = 0;
  const char *handed = getenv("STACKYARD_APPTAINER");
  if (handed) {
    argv = taken(handed, &path);
    for (argc = 0; argv[argc];) argc++;
  }
  int direct = is_itself(path, own);
  if (direct && argc < 2) fail(2, NULL, "usage: %s COMMAND [ARGUMENT...]", path);
  int stub = is_stub(root), dead = !stub && is_stale(root);
  if (dead) {
    take_away(root);
    stub = is_stub(root);
    dead = !stub && is_stale(root);
  }
  if (stub || dead) mount_here(argv, path);
  if (direct && !is_there(root)) fail(4, RESTORE, "%s/prefix not found: the files of this revision were removed", root);
  give_back();
  run_before(direct ? NULL : path, argv, own);
  if (!direct) {
    path = own_path(path, argv);
    become(path, path, argv);
  }
  for (int tries = 0; tries < 2; tries++) {
    if (direct) execvp(argv[1], argv + 1);
    else if (realpath(path, leads) && !strcmp(leads, own)) fail(127, NULL, "%s: not a command of %s", path, root);
    else execv(path, argv);
    int why = errno;
    if (!is_stale(root)) {
      errno = why;
      break;
    }
    if (!mount_again()) fail(4, STALE, DEAD, root);
  }
  not_started(direct ? argv[1] : path);
}
