/* The root of a container (container.c): the image's directories in a tmpfs, the host's that are bound, and pivot_root.
 *
 * What is bound is opened while the host's root is the root, so that its links lead where they do there; it is mounted
 * where the new root is the root, so that the image's links lead within the image.
 */
#include <dirent.h>
#include <glob.h>

#define HOST "/.stackyard-host" /* where the host's root is until all is bound */
#define MOST 256                /* bindings, and directories to bind into */

/* A directory or file that is bound: opened while the host's root is the root, so that its links lead where they do
 * there. A top-level directory of the host may be that of a file system which hangs: nothing is asked of it. */
struct binding { int source; int folder; int read_only; int is_top; char file[PATH_MAX]; char target[PATH_MAX]; };
static struct binding bindings[MOST];
static int bound;

static int links; /* what the container has in the place of the stubs, opened before the image hides it */

static struct binding *add_binding(int source, const char *target, int folder, int read_only) {
  if (bound == MOST) fail(4, NULL, "more than %d bindings", MOST);
  struct binding *each = &bindings[bound++];
  each->source = source;
  each->folder = folder;
  each->read_only = read_only;
  each->is_top = 0;
  *each->file = 0;
  if (snprintf(each->target, sizeof each->target, "%s", target) >= (int)sizeof each->target)
    fail(4, NULL, "path too long: %s", target);
  return each;
}

static void will_bind(const char *source, const char *target, int read_only, int needed) {
  struct stat found;
  int opened = open(source, O_PATH | O_CLOEXEC);
  if (opened >= 0 && !fstat(opened, &found)) {
    struct binding *each = add_binding(opened, target, S_ISDIR(found.st_mode), read_only);
    if (!each->folder) snprintf(each->file, sizeof each->file, "%s", source);
  } else if (needed)
    fail(4, "bind another directory, or make this one on each node", "cannot bind %s in the container of %s: %s",
         source, root, strerror(errno));
}

static int is_among(const char *name, const char *const *names) {
  for (; *names; names++)
    if (!strcmp(name, *names)) return 1;
  return 0;
}

static int is_empty(const char *path) {
  struct dirent *entry;
  int empty = 1;
  DIR *folder = opendir(path);
  if (!folder) return errno == ENOENT;
  while (empty && (entry = readdir(folder))) empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
  closedir(folder);
  return empty;
}

static const char *const ALWAYS[] = {"dev", "proc", "sys", NULL};
static const char *const USERS[] = {"home", "tmp", "run", "mnt", "media", "srv", NULL};
static const char *const SYSTEMS[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "var", "boot",
                                      "lost+found", NULL};

/* The host's top-level directories: those of users, and those that the image does not have. */
static void will_bind_host(const char *image) {
  char path[PATH_MAX], inside[PATH_MAX];
  struct dirent *entry;
  struct stat found;
  DIR *top = opendir("/");
  while (top && (entry = readdir(top))) {
    const char *name = entry->d_name;
    if (*name == '.' || is_among(name, SYSTEMS) || is_among(name, ALWAYS)) continue;
    join_path(path, "", name);
    join_path(inside, image, name);
    if (entry->d_type != DT_DIR && (stat(path, &found) || !S_ISDIR(found.st_mode))) continue;
    if (!is_among(name, USERS) && !is_empty(inside)) continue;
    int opened = open(path, O_PATH | O_CLOEXEC); /* nothing is asked of its file system, which may hang */
    if (opened >= 0) add_binding(opened, path, 1, 0)->is_top = 1;
  }
  if (top) closedir(top);
  will_bind("/var/tmp", "/var/tmp", 0, 0);
}

/* Libraries of the host that this node has, under their own names: programs look for a library by its link's. */
static void will_bind_libraries(const char *pattern) {
  char path[PATH_MAX];
  glob_t found;
  if (!glob(pattern, 0, NULL, &found))
    for (size_t i = 0; i < found.gl_pathc; i++) {
      const char *name = strrchr(found.gl_pathv[i], '/');
      if (name && snprintf(path, sizeof path, "%s%s", LIBRARIES, name) < (int)sizeof path)
        will_bind(found.gl_pathv[i], path, 1, 0);
    }
  globfree(&found);
}

static void will_bind_all(const char *image) {
  static const char *const files[] = {"/etc/group", "/etc/hosts", "/etc/resolv.conf", "/etc/localtime", NULL};
  char path[PATH_MAX], *line, *home = getenv("HOME");
  int at = 0;
  for (int i = 0; ALWAYS[i]; i++) {
    join_path(path, "", ALWAYS[i]);
    will_bind(path, path, 0, 1);
  }
  for (int i = 0; files[i]; i++) will_bind(files[i], files[i], 1, 0);
  if (!is_isolated()) {
    will_bind_host(image);
    if (home && *home == '/' && home[1]) will_bind(home, home, 0, 0);
  }
  will_bind(root, root, 0, 1);
  join_path(path, root, "prefix");
  add_binding(links, path, 1, 1);
  while ((line = setting("bind", &at))) {
    char copy[3 * PATH_MAX], *rest = copy;
    snprintf(copy, sizeof copy, "%s", line);
    char *source = strsep(&rest, "\t"), *target = strsep(&rest, "\t");
    if (target) will_bind(source, target, rest && !strcmp(rest, "ro"), 1);
  }
  for (at = 0; (line = setting("library", &at));) will_bind_libraries(line);
}

static dev_t ours[MOST];  /* the file systems in which a place to mount can be made: our own */
static char layers[MOST][PATH_MAX];
static int layered;

static void stop(const char *what, const char *path) {
  fail(4, NULL, "cannot make the container of %s: %s %s: %s", root, what, path, strerror(errno));
}

static int bound_from(int source, const char *name, const char *target) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "/proc/self/fd/%d%s%s", source, *name ? "/" : "", name);
  return !mount(path, target, NULL, MS_BIND | MS_REC, NULL);
}

static void bind_from(int source, const char *name, const char *target) {
  if (!bound_from(source, name, target)) stop("bind", target);
}

/* Open a file of the host once more, where its links lead as they do there. */
static int open_on_host(const char *path) {
  int here = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (here < 0 || chroot(HOST)) stop("open", path);
  int opened = open(path, O_PATH | O_CLOEXEC), reason = errno;
  if (fchdir(here) || chroot(".")) stop("leave", HOST);
  close(here);
  errno = reason;
  return opened;
}

/* A file that is replaced on the host meanwhile (/etc/group by a new account) is no longer there to be bound. */
static void bind_file(const struct binding *each) {
  for (int tries = 0; !bound_from(each->source, "", each->target); tries++) {
    int newer = errno == ENOENT && tries < 100 ? open_on_host(each->file) : -1;
    if (newer < 0 || dup3(newer, each->source, O_CLOEXEC) < 0) stop("bind", each->target);
    close(newer);
  }
}

/* Show what a directory has in an empty one of ours, where more can be added. */
static void fill(int source, const char *target) {
  char path[PATH_MAX], leads[PATH_MAX];
  struct dirent *entry;
  struct stat found;
  int listed = openat(source, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *folder = listed < 0 ? NULL : fdopendir(listed);
  if (!folder) stop("list", target);
  while ((entry = readdir(folder))) {
    const char *name = entry->d_name;
    if (!strcmp(name, ".") || !strcmp(name, "..") || fstatat(source, name, &found, AT_SYMLINK_NOFOLLOW)) continue;
    join_path(path, target, name);
    if (S_ISLNK(found.st_mode)) {
      ssize_t size = readlinkat(source, name, leads, sizeof leads - 1);
      if (size < 0) continue;
      leads[size] = 0;
      if (symlink(leads, path)) stop("link", path);
      continue;
    }
    int made = S_ISDIR(found.st_mode) ? mkdir(path, 0755) : mknod(path, S_IFREG | 0644, 0);
    if (made) stop("make", path);
    bind_from(source, name, path);
  }
  closedir(folder);
}

static void our_layer(const char *path, int read_only) {
  struct stat found;
  if (mount("stackyard", path, "tmpfs", MS_NOSUID | MS_NODEV, read_only ? "mode=0755" : "mode=1777") ||
      stat(path, &found))
    stop("mount", path);
  if (layered == MOST) fail(4, NULL, "more than %d directories to bind into", MOST);
  snprintf(layers[layered], PATH_MAX, "%s", read_only ? path : "");
  ours[layered++] = found.st_dev;
}

/* Let a directory be written to, so that a place to mount can be made in it: a layer of ours that shows what it had. */
static void open_up(const char *path) {
  struct stat found;
  int source = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (source < 0 || fstat(source, &found)) stop("open", path);
  for (int i = 0; i < layered; i++)
    if (ours[i] == found.st_dev) {
      close(source);
      return;
    }
  our_layer(path, 1);
  fill(source, path);
  close(source);
}

/* Make sure that something can be mounted on a path in the new root. */
static void make_place(const char *target, int folder) {
  char path[PATH_MAX], above[PATH_MAX] = "/";
  struct stat found;
  snprintf(path, sizeof path, "%s", target);
  for (char *at = path; at && *at;) {
    char *next = strchr(at + 1, '/');
    if (next) *next = 0;
    if (stat(path, &found)) {
      if (errno != ENOENT) stop("look at", path);
      open_up(above);
      if (next || folder ? mkdir(path, 0755) : mknod(path, S_IFREG | 0644, 0)) stop("make", path);
    }
    snprintf(above, sizeof above, "%s", path);
    if (next) *next = '/';
    at = next;
  }
}

/* What the mount may not do is said again, as a user cannot take it back; without a word of access times the kernel
 * keeps those. */
static void make_read_only(const char *path) {
  struct statfs about;
  unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY;
  if (!statfs(path, &about)) flags |= about.f_flags & (MS_NOSUID | MS_NODEV | MS_NOEXEC);
  if (mount(NULL, path, NULL, flags, NULL)) stop("make read-only", path);
}

/* A link of the image at the place of a file: the file is to be there, and not where the link leads. */
static void replace_link(const char *path) {
  char above[PATH_MAX];
  struct stat found;
  if (lstat(path, &found) || !S_ISLNK(found.st_mode)) return;
  snprintf(above, sizeof above, "%s", path);
  *strrchr(above, '/') = 0;
  open_up(*above ? above : "/");
  if (unlink(path)) stop("replace", path);
}

static void bind_one(const struct binding *each) {
  struct stat there, here;
  if (!each->folder) replace_link(each->target);
  if (!each->is_top && !stat(each->target, &there) && !fstat(each->source, &here) && there.st_dev == here.st_dev &&
      there.st_ino == here.st_ino && !each->read_only)
    return; /* seen already, as a part of another */
  make_place(each->target, each->folder);
  if (*each->file) bind_file(each);
  else bind_from(each->source, "", each->target);
  if (each->read_only) make_read_only(each->target);
}

/* The host's accounts, and this user's where they come from elsewhere (LDAP): programs ask for their own name. */
static void write_accounts(void) {
  static char text[1 << 20];
  char line[PATH_MAX + NAME], number[NAME];
  const char *user = getenv("USER"), *home = getenv("HOME");
  if (slurp(HOST "/etc/passwd", text, sizeof text) < 0) *text = 0;
  snprintf(number, sizeof number, ":x:%u:", geteuid());
  make_place("/.stackyard/passwd", 0);
  replace_link("/etc/passwd");
  make_place("/etc/passwd", 0);
  int file = open("/.stackyard/passwd", O_WRONLY | O_CLOEXEC);
  int size = snprintf(line, sizeof line, "%s:x:%u:%u::%s:/bin/sh\n", user ? user : "user", geteuid(), getegid(),
                      home ? home : "/");
  int known = strstr(text, number) != NULL;
  if (file < 0 || write(file, text, strlen(text)) < 0 || (!known && write(file, line, size) != size))
    stop("write", "/.stackyard/passwd");
  close(file);
  if (mount("/.stackyard/passwd", "/etc/passwd", NULL, MS_BIND, NULL)) stop("bind", "/etc/passwd");
}

/* The settings of the image's virtual environments: with the interpreter's directory below the prefix, where it is
 * outside too, since other environments are made of it. */
static void write_environments(void) {
  static char text[TEXT * 4];
  char place[PATH_MAX], copy[PATH_MAX * 2], *line;
  for (int at = 0, number = 0; (line = setting("venv", &at)); number++) {
    char *rest = copy;
    snprintf(copy, sizeof copy, "%s", line);
    char *tree = strsep(&rest, "\t"), *file = strsep(&rest, "\t");
    if (!rest) continue;
    if (snprintf(place, sizeof place, "%s/prefix/%s", root, file) >= (int)sizeof place) stop("read", file);
    if (slurp(place, text, sizeof text) < 0) stop("read", place);
    snprintf(place, sizeof place, "/.stackyard/venv-%d", number);
    make_place(place, 0);
    make_place(rest, 0);
    FILE *out = fopen(place, "we");
    if (!out || fprintf(out, "home = %s/prefix/%s/bin\n%s", root, tree, text) < 0 || fclose(out)) stop("write", place);
    if (mount(place, rest, NULL, MS_BIND, NULL)) stop("bind", rest);
    make_read_only(rest);
  }
}

/* The interpreters of the image's virtual environments: this program in the place of each link, since Python takes the
 * target of a link for the interpreter that other environments are to be made of. What they are is noted for `become`. */
static void replace_interpreters(void) {
  char launch[PATH_MAX], place[PATH_MAX], copy[PATH_MAX * 2], *line;
  join_path(launch, root, "launch");
  for (int at = 0; (line = setting("python", &at));) {
    char *real = copy;
    snprintf(copy, sizeof copy, "%s", line);
    char *path = strsep(&real, "\t");
    if (!real || snprintf(place, sizeof place, "%s%s", REPLACED, path) >= (int)sizeof place) continue;
    char *end = strrchr(place, '/');
    *end = 0;
    make_place(place, 1);
    *end = '/';
    replace_link(path);
    make_place(path, 0);
    if (symlink(real, place)) stop("make", place);
    if (mount(launch, path, NULL, MS_BIND, NULL)) stop("bind", path);
    make_read_only(path);
  }
}

static void own_folder(const char *path) {
  make_place(path, 1);
  our_layer(path, 0);
}

/* Make the new root of a mounted image in `place`, a directory of the host that is hidden by it, and move there. */
static void enter_container(const char *place, const char *image) {
  char *home = getenv("HOME");
  int source = open(image, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (source < 0) stop("open", image);
  will_bind_all(image);
  our_layer(place, 1);
  snprintf(layers[0], PATH_MAX, "/");
  if (mount(NULL, place, NULL, MS_UNBINDABLE, NULL)) stop("mount", place);
  fill(source, place);
  close(source);
  umask(022);
  char host[PATH_MAX];
  join_path(host, place, HOST + 1);
  if (mkdir(host, 0700) || chdir(place) || syscall(SYS_pivot_root, ".", HOST + 1) || chdir("/")) stop("enter", place);
  make_place("/proc", 1);
  if (mount(HOST "/proc", "/proc", NULL, MS_BIND | MS_REC, NULL)) stop("bind", "/proc");
  if (is_isolated()) {
    own_folder("/tmp");
    own_folder("/var/tmp");
    if (home && *home == '/' && home[1]) own_folder(home);
  }
  for (int i = 0; i < bound; i++) bind_one(&bindings[i]);
  if (mount(NULL, "/", NULL, MS_PRIVATE, NULL)) stop("mount", "/");
  write_accounts();
  write_environments();
  replace_interpreters();
  if (umount2(HOST, MNT_DETACH) || rmdir(HOST)) stop("leave", HOST);
  for (int i = 0; i < layered; i++)
    if (*layers[i]) make_read_only(layers[i]);
  for (int i = 0; i < bound; i++) close(bindings[i].source);
}
