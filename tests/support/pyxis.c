/* A SPANK plug-in that gives the tests' real Slurm the options, variables, errors and rules of Pyxis 0.24, and really enters
   a root: a directory of images=DIR in place of a registry, or a SquashFS file. Real Enroot cannot be had on the test machines.

   As Pyxis does it: one user and mount namespace per node and step, held by a process that all tasks join; no PID namespace;
   /tmp and /run are empty, /dev with /dev/shm is the host's; neither home nor working directory; of /etc/environment of the
   image every value wins but those named by --container-env; LANG and LC_ALL go; PYTORCH_VERSION brings RANK and others.
   The root is a copy of the image, as `enroot create` makes one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <slurm/spank.h>
SPANK_PLUGIN(pyxis, 1)
enum { IMAGE, MOUNTS, WORKDIR, NAME, SAVE, ENV, UNSHARE, HOME, NO_HOME, REMAP, NO_REMAP, ENTRY, NO_ENTRY, LOG, WRITABLE, READONLY, N };
static struct { const char *name, *arg; char *value; } opt[N] = {
  {"container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH", 0}, {"container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", 0},
  {"container-workdir", "PATH", 0}, {"container-name", "NAME", 0}, {"container-save", "PATH", 0},
  {"container-env", "NAME[,NAME...]", 0}, {"container-unshare", "NS[,NS...]", 0}, {"container-mount-home", 0, 0},
  {"no-container-mount-home", 0, 0}, {"container-remap-root", 0, 0}, {"no-container-remap-root", 0, 0},
  {"container-entrypoint", 0, 0}, {"no-container-entrypoint", 0, 0}, {"container-entrypoint-log", 0, 0},
  {"container-writable", 0, 0}, {"container-readonly", 0, 0}};
static char images[4096];
static pid_t holder;
static int bad(const char *why, const char *what) { slurm_error("pyxis: %s: %s", why, what); return -1; }
static int is_path(const char *text) { return *text == '.' || *text == '/'; }
static int mounts_ok(const char *text) {
  char *rest = strdup(text), *one;
  while ((one = strsep(&rest, ","))) {
    char *source = strsep(&one, ":"), *target = one ? strsep(&one, ":") : source;
    if (!*source || !*target) return bad("--container-mounts: invalid format", text);
    if (!is_path(source) && strcmp(source, "tmpfs") && strcmp(source, "umount")) return bad("mount source must be a path", source);
    if (!is_path(target)) return bad("mount target must be a path", target);
  }
  return 0;
}
static int take(int i, const char *given, int remote) {
  const char *value = opt[i].arg ? given : "y", *flag;
  if (!value || !*value) return bad("argument required", opt[i].name);
  if (opt[i].value && strcmp(opt[i].value, value)) return bad("specified multiple times", opt[i].name);
  opt[i].value = strdup(value);
  for (int pair = HOME; pair < N; pair += 2) {
    if (pair == LOG) pair = WRITABLE;
    if (opt[pair].value && opt[pair + 1].value) return bad("both were specified", opt[i].name);
  }
  if (i == NAME && (flag = strchr(value, ':')) && strcmp(flag, ":auto") && strcmp(flag, ":create") && strcmp(flag, ":exec") &&
      strcmp(flag, ":no_exec")) return bad("--container-name: unknown flag", value);
  return i == MOUNTS ? mounts_ok(value) : 0;
}
#ifdef EDF   /* --environment=FILE, whose lines have the same settings */
static void unquote(char *text) {   /* a basic string: up to its last quote, with doubled $ and escaped quotes; a single $ is a variable */
  char *to = text, *from = text + 1, *end = strrchr(text, '"');
  while (from < end) { if (*from == '$' && from[1] != '$') *from = '?'; if ((*from == '\\' || (*from == '$' && from[1] == '$')) && from + 1 < end) from++; *to++ = *from++; }
  *to = 0;
}
static int read_edf(int i, const char *path, int remote) {
  char line[8192], mounts[65536] = "", *start;
  FILE *file = fopen(path, "r");
  int inside = 0;
  if (!file) return bad("unable to read the environment definition file", path);
  while (fgets(line, sizeof line, file)) {
    char *value = (start = strchr(line, '"')) ? start : line;
    if (inside && *line == ']') { inside = 0; continue; }
    if (!strncmp(line, "mounts = [", 10)) { inside = 1; continue; }
    if (start) unquote(value);
    if (inside) snprintf(mounts + strlen(mounts), sizeof mounts - strlen(mounts), "%s%s", *mounts ? "," : "", value);
    else if (!strncmp(line, "image = ", 8)) opt[IMAGE].value = strdup(value);
    else if (!strncmp(line, "workdir = ", 10)) opt[WORKDIR].value = strdup(value);
    else if (*line == '[') break;
    else if (*line != '\n' && strncmp(line, "entrypoint = ", 13) && strncmp(line, "writable = ", 11)) return bad("unknown key", line);
  }
  fclose(file);
  opt[NO_REMAP].value = "y";
  if (*mounts) opt[MOUNTS].value = strdup(mounts);
  return opt[IMAGE].value ? *mounts ? mounts_ok(mounts) : 0 : bad("no image in", path);
}
#endif
int slurm_spank_init(spank_t sp, int count, char **words) {
  for (int i = 0; i < count; i++) if (!strncmp(words[i], "images=", 7)) snprintf(images, sizeof images, "%s", words[i] + 7);
#ifdef EDF
  struct spank_option edf = {"environment", "PATH", "[edf] the environment definition file to use", 1, 0, read_edf};
  return spank_option_register(sp, &edf) == ESPANK_SUCCESS ? 0 : -1;
#endif
  for (int i = 0; i < N; i++) {
    struct spank_option one = {(char *)opt[i].name, (char *)opt[i].arg, "[pyxis] see its documentation", opt[i].arg != 0, i, take};
    if (spank_option_register(sp, &one) != ESPANK_SUCCESS) return -1;
  }
  return 0;
}
int slurm_spank_init_post_opt(spank_t sp, int count, char **words) {
  for (int i = 0; i <= UNSHARE; i++) {   /* PYXIS_CONTAINER_*, where the command line has no such word */
    char name[64], got[8192], *value = 0;
    snprintf(name, sizeof name, "PYXIS_%s", opt[i].name);
    for (char *c = name; *c; c++) *c = *c == '-' ? '_' : *c >= 'a' && *c <= 'z' ? *c - 32 : *c;
    if (spank_context() != S_CTX_REMOTE) value = getenv(name);
    else if (spank_getenv(sp, name, got, sizeof got) == ESPANK_SUCCESS) value = got;
    if (value && *value && !opt[i].value && take(i, value, 0)) return -1;
  }
  for (int i = 1; i < N && !opt[IMAGE].value && !opt[NAME].value; i++)
    if (opt[i].value) slurm_error("pyxis: ignoring --%s because neither --container-image nor --container-name is set", opt[i].name);
  return 0;
}
static void put(const char *path, const char *text) {
  int file = open(path, O_WRONLY);
  if (file < 0 || write(file, text, strlen(text)) < 0) bad(path, strerror(errno));
  close(file);
}
#define ROOT "/mnt/root"   /* in the step's own mount namespace */
static int bind_one(const char *source, const char *target, const char *flags) {
  char at[8192];
  struct stat status;
  snprintf(at, sizeof at, ROOT "%s", target);
  int empty = !strcmp(source, "tmpfs");
  if (!empty && stat(source, &status)) return bad("--container-mounts: no such file or directory", source);
  for (char *c = at + sizeof ROOT; (c = strchr(c, '/')); c++) { *c = 0; mkdir(at, 0755); *c = '/'; }
  if (empty || S_ISDIR(status.st_mode)) mkdir(at, 0755); else close(open(at, O_CREAT | O_WRONLY, 0644));
  if (empty) return mount("tmpfs", at, "tmpfs", 0, 0) ? bad("mount", target) : 0;
  if (mount(source, at, 0, MS_BIND | MS_REC, 0)) return bad("couldn't mount", target);
  if (flags && strstr(flags, "ro") && mount(0, at, 0, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, 0)) return bad("ro", target);
  return 0;
}
static int unpack(const char *image) {
  struct stat status;
  int code, file = !stat(image, &status) && S_ISREG(status.st_mode);
  pid_t child = fork();
  if (!child && file) execlp("unsquashfs", "unsquashfs", "-q", "-n", "-no-xattrs", "-d", ROOT, image, (char *)0);
  if (!child) { execlp("cp", "cp", "-rP", image, ROOT, (char *)0); _exit(127); }
  return waitpid(child, &code, 0) < 0 || code ? bad("failed to create container filesystem", image) : 0;
}
static int enter(const char *image, const char *script, uid_t uid, gid_t gid) {
  char text[64], *rest = opt[MOUNTS].value ? strdup(opt[MOUNTS].value) : 0, *one, *home = getenv("HOME");
  int remap = !opt[NO_REMAP].value;   /* the default of Pyxis */
  prctl(PR_SET_DUMPABLE, 1);   /* after setuid /proc/self is root's, and uid_map could not be written */
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) return bad("couldn't create user namespace", strerror(errno));
  put("/proc/self/setgroups", "deny");
  snprintf(text, sizeof text, "%u %u 1", remap ? 0 : uid, uid); put("/proc/self/uid_map", text);
  snprintf(text, sizeof text, "%u %u 1", remap ? 0 : gid, gid); put("/proc/self/gid_map", text);
  if (mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) || mount("tmpfs", "/mnt", "tmpfs", 0, 0)) return bad("mount", strerror(errno));
  if (unpack(image) || mount(ROOT, ROOT, 0, MS_BIND | MS_REC, 0)) return -1;
  if (access(ROOT "/bin/sh", X_OK)) return bad("container start failed with error code: 1: no sh in the image", image);
  for (const char **d = (const char *[]){"/proc", "/sys", "/dev", "/etc/hosts", "/etc/resolv.conf", 0}; *d; d++) if (bind_one(*d, *d, 0)) return -1;
  if (bind_one("tmpfs", "/tmp", 0) || bind_one("tmpfs", "/run", 0)) return -1;
  if (opt[HOME].value && home && bind_one(home, remap ? "/root" : home, 0)) return -1;
  while (rest && (one = strsep(&rest, ","))) {
    char *source = strsep(&one, ":"), *target = one ? strsep(&one, ":") : source;
    if (bind_one(source, target, one)) return -1;
  }
  if (script && bind_one(script, script, 0)) return -1;
  if (opt[READONLY].value && mount(0, ROOT, 0, MS_REMOUNT | MS_BIND | MS_RDONLY, 0)) return bad("readonly", strerror(errno));
  if (chdir(ROOT) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/")) return bad("pivot_root", strerror(errno));
  return 0;
}
int slurm_spank_user_init(spank_t sp, int count, char **words) {   /* once per node and step */
  char root[8192], **argv = 0;
  const char *image = opt[IMAGE].value;
  int ready[2], argc = 0;
  uid_t uid = geteuid();
  gid_t gid = getegid();
  if (!image) return 0;
  if (!strncmp(image, "docker://", 9)) image += 9;
  if (is_path(image)) snprintf(root, sizeof root, "%s", image);
  else {
    int at = snprintf(root, sizeof root, "%s/", images);
    snprintf(root + at, sizeof root - at, "%s", image);
    for (char *c = root + at; *c; c++) if (strchr("/#:@", *c)) *c = '_';
  }
  if (access(root, R_OK)) return is_path(image) ? bad("No such file or directory", image)
    : bad(strstr(image, "login") ? "failed to import docker image: 401 Unauthorized" : "failed to import docker image: 404", opt[IMAGE].value);
  spank_get_item(sp, S_JOB_ARGV, &argc, &argv);
  const char *script = argc && strstr(argv[0], "/slurm_script") ? argv[0] : 0;
  if (pipe2(ready, O_CLOEXEC)) return -1;
  if (!(holder = fork())) {
    char home[4096];
    if (spank_getenv(sp, "HOME", home, sizeof home) == ESPANK_SUCCESS) setenv("HOME", home, 1);
    if (seteuid(0) || (uid && setgroups(0, 0)) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid) || enter(root, script, uid, gid)) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < 3; i++) if (open("/dev/null", O_RDWR) >= 0) dup2(open("/dev/null", O_RDWR), i);
    if (write(ready[1], "1", 1) == 1) for (close_range(3, ~0U, 0);;) pause();   /* the step's pipes would never end */
    _exit(1);
  }
  close(ready[1]);
  int started = read(ready[0], root, 1) == 1;
  close(ready[0]);
  return started ? 0 : bad("couldn't start container", opt[IMAGE].value);
}
static void given(spank_t sp, const char *name, unsigned value) { char text[32]; snprintf(text, sizeof text, "%u", value); spank_setenv(sp, name, text, 1); }
int slurm_spank_task_init(spank_t sp, int count, char **words) {
  char path[64], line[8192], *equal;
  uint32_t job = 0, rank = 0, local = 0, size = 0;
  if (!holder) return 0;
  for (const char **one = (const char *[]){"user", "mnt", 0}; *one; one++) {
    snprintf(path, sizeof path, "/proc/%d/ns/%s", holder, *one);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0) return bad("couldn't join container", strerror(errno));
    static int user = -1;   /* both are opened before the first is joined */
    if (user < 0) { user = space; continue; }
    if (setns(user, CLONE_NEWUSER) || setns(space, CLONE_NEWNS)) return bad("couldn't join container", strerror(errno));
  }
  for (const char **one = (const char *[]){"LANG", "LANGUAGE", "LC_ALL", 0}; *one; one++) spank_unsetenv(sp, *one);
  spank_setenv(sp, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
  FILE *file = fopen("/etc/environment", "r");
  while (file && fgets(line, sizeof line, file)) if ((equal = strchr(line, '='))) {
    *equal = equal[strcspn(equal + 1, "\n") + 1] = 0;
    spank_setenv(sp, line, equal + 1, !(opt[ENV].value && strstr(opt[ENV].value, line)));
    if (strcmp(line, "PYTORCH_VERSION")) continue;
    spank_get_item(sp, S_JOB_ID, &job); spank_get_item(sp, S_TASK_GLOBAL_ID, &rank);
    spank_get_item(sp, S_TASK_ID, &local); spank_get_item(sp, S_JOB_TOTAL_TASK_COUNT, &size);
    given(sp, "RANK", rank); given(sp, "LOCAL_RANK", local); given(sp, "WORLD_SIZE", size);
    given(sp, "MASTER_PORT", 61000 + job % 4536); given(sp, "OMP_NUM_THREADS", 1);
  }
  if (file) fclose(file);
  return chdir(opt[WORKDIR].value ? opt[WORKDIR].value : "/") ? bad("couldn't chdir to container cwd", opt[WORKDIR].value) : 0;
}
int slurm_spank_exit(spank_t sp, int count, char **words) {
  if (holder > 0) { kill(holder, SIGKILL); waitpid(holder, 0, 0); }
  return 0;
}
