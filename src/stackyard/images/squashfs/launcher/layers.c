/* An image of several SquashFS partitions (a SIF file with overlays): each is mounted by a server of its own, and
 * overlayfs joins them, or fuse-overlayfs where the kernel leaves that to root. `.container` has two more settings:
 *
 *   bytes SIZE (of the whole file)      layer OFFSET (a line each, the lowest first)
 *
 * No server ends by itself, since one may be idle while files of another are open. They run in a mount namespace beside
 * the container's, in which nothing of this is mounted any more once the container is made: so the mounts are the
 * container's alone, the kernel takes them away with its last process, and then the servers end. Their parent, the
 * keeper, stays in the container as long as other commands may join it: until nothing has run there for a while. If it
 * is killed, they end at once.
 */
#define KEEPER "stackyard-image" /* its name: host/run/processes.py knows it */
#define LAYERS 64
#define OTHERS 64

static int servers[LAYERS + OTHERS + 1], server_count;
static char others[OTHERS][PATH_MAX]; /* the prefixes of other images that are mounted for the container */
static int other_count;
static char joiner[PATH_MAX]; /* fuse-overlayfs; empty: the kernel joins them */

static int is_layered(void) {
  return one_setting("layer") != NULL;
}

static unsigned long long needed_bytes(void) {
  char *size = one_setting("bytes");
  return size ? strtoull(size, NULL, 10) : 0;
}

static int mount_overlay(const char *place, const char *lower) {
  return mount(KEEPER, place, "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NODIRATIME, lower);
}

/* Why partitions cannot be joined here; NULL: they can. Tried in a child, on a directory that nothing else uses. */
static const char *lacking_overlay(const char *place) {
  int status = 0, child = fork();
  if (child == 0)
    _exit(make_namespace() || mount("stackyard", place, "tmpfs", MS_NOSUID | MS_NODEV, NULL) || chdir(place) ||
          mkdir("a", 0755) || mkdir("b", 0755) || mkdir("c", 0755) || mount_overlay("c", "lowerdir=b:a"));
  if (child < 0 || waitpid(child, &status, 0) != child || status == 0) return NULL;
  if (find_program("fuse-overlayfs", joiner)) return NULL;
  return "only root can mount overlayfs on this machine (Linux 5.11 lets users do it), and fuse-overlayfs was not found";
}

/* Start a server that ends with this process. */
static void start_server(const char *image, const char *place, const char *log, const char *options) {
  sigset_t none;
  int parent = getpid(), server = fork();
  if (server < 0) fail(4, of_limits(errno), "cannot start %s: %s", program, strerror(errno));
  if (server == 0) {
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    serve(image, place, log, options);
  }
  servers[server_count++] = server;
}

/* Wait until another file system is at a place than before. */
static void wait_for_mount(const char *place, dev_t before, const char *log) {
  struct stat found;
  for (double until = now() + LIMIT_S; now() < until; pause_ms(1)) {
    if (!stat(place, &found) && found.st_dev != before) return;
    if (waitpid(servers[server_count - 1], NULL, WNOHANG)) break;
  }
  not_mounted("the file system server of a partition ended", log);
}

/* Where partition `number` is mounted, and their join ("all"), and what the container has for stubs ("inside"). */
static void layer_path(char *to, const char *name) {
  char prefix[PATH_MAX];
  join_path(prefix, root, "prefix");
  join_path(to, prefix, name);
}

static void mount_layers(const char *log) {
  char image[PATH_MAX], place[PATH_MAX], name[NAME], options[NAME], lower[NAME] = "lowerdir=", *offset;
  struct stat found;
  int at = 0, count = 0;
  image_of(image, root);
  join_path(place, root, "prefix/.inside");
  if ((links = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) stop("open", place);
  join_path(place, root, "prefix");
  if (mount("stackyard", place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") || chdir(place) || stat(".", &found))
    stop("mount", place);
  if (mkdir("inside", 0755)) stop("make", "inside");
  bind_from(links, "", "inside");
  close(links);
  if (!find_server()) not_mounted("squashfuse_ll not found", log);
  for (; (offset = setting("layer", &at)); count++) {
    if (count == LAYERS) fail(4, NULL, "more than %d partitions: %s", LAYERS, image);
    snprintf(name, sizeof name, "%d", count);
    snprintf(options, sizeof options, ",offset=%.20s", offset);
    layer_path(place, name);
    if (mkdir(name, 0755)) stop("make", place);
    start_server(image, place, log, options);
    wait_for_mount(name, found.st_dev, log);
  }
  while (count--) snprintf(lower + strlen(lower), 8, "%d%s", count, count ? ":" : "");
  if (mkdir("all", 0755)) stop("make", "all");
  if (*joiner || mount_overlay("all", lower)) {
    if (!*joiner) not_mounted("overlayfs refused its partitions", log);
    char own[PATH_MAX];
    strcpy(own, program);
    strcpy(program, joiner);
    layer_path(place, "all");
    snprintf(options, sizeof options, ",%s", lower);
    start_server(NULL, place, log, options);
    wait_for_mount("all", found.st_dev, log);
    strcpy(program, own);
  }
  if (chdir("/")) stop("enter", "/");
}

/* Note that the image of another revision is mounted for this container; 0: this is not the keeper of one. */
static int keep_other(const char *revision, int server) {
  if (!server_count) return 0;
  if (other_count == OTHERS) fail(4, NULL, "more than %d images", OTHERS);
  join_path(others[other_count++], revision, "prefix");
  servers[server_count++] = server;
  return 1;
}

/* Make the container in a mount namespace of its own, and leave nothing mounted in that of the servers, which is
 * returned. */
static int move_to_container(const char *folder) {
  char path[PATH_MAX];
  int theirs = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  if (theirs < 0 || unshare(CLONE_NEWNS)) stop("leave", "/proc/self/ns/mnt");
  layer_path(path, "inside");
  if ((links = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) stop("open", path);
  layer_path(path, "all");
  enter_container(folder, path);
  int ours = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  if (ours < 0 || setns(theirs, CLONE_NEWNS)) stop("enter", "/proc/self/ns/mnt");
  join_path(path, root, "prefix");
  if (umount2(path, MNT_DETACH)) stop("unmount", path);
  for (int i = 0; i < other_count; i++) umount2(others[i], MNT_DETACH);
  if (setns(ours, CLONE_NEWNS)) stop("enter", "/proc/self/ns/mnt");
  close(ours);
  return theirs;
}

/* Whether another process runs in the container. */
static int is_used(void) {
  char path[NAME * 2];
  struct stat mine, found;
  struct dirent *entry;
  int used = 0;
  DIR *processes = opendir("/proc");
  if (!processes || stat("/proc/self/ns/mnt", &mine)) used = 1;
  while (!used && (entry = readdir(processes))) {
    if (*entry->d_name < '1' || *entry->d_name > '9' || atoi(entry->d_name) == getpid()) continue;
    snprintf(path, sizeof path, "/proc/%s/ns/mnt", entry->d_name);
    used = !stat(path, &found) && found.st_ino == mine.st_ino && found.st_dev == mine.st_dev;
  }
  if (processes) closedir(processes);
  return used;
}

/* Seconds until the container may be given up; each join renews the time of the note. 0: it is given up, and the note
 * stays locked. */
static double left_s(int note, double idle) {
  struct stat about;
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (fstat(note, &about)) return idle;
  double left = idle + (about.st_mtim.tv_sec - at.tv_sec) + (about.st_mtim.tv_nsec - at.tv_nsec) / 1e9;
  if (left > 0) return left < idle ? left : idle; /* a clock that was set back */
  if (is_used() || flock(note, LOCK_EX | LOCK_NB)) return idle > 1 ? idle : 1;
  if (!is_used()) return 0;
  flock(note, LOCK_UN);
  return idle > 1 ? idle : 1;
}

/* Wait for a signal of a server that has ended; then nothing of its partition can be read. */
static int has_ended(double seconds) {
  struct timespec span = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9) + 1000000 * (seconds < 0.5)};
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigtimedwait(&child, NULL, &span);
  return waitpid(-1, NULL, WNOHANG) > 0;
}

static void keep(int note, int theirs, double idle) {
  double left;
  while ((left = left_s(note, idle)) > 0)
    if (has_ended(left)) _exit(0);
  if (ftruncate(note, 0) || setns(theirs, CLONE_NEWNS)) _exit(0); /* what has left the container may still use it */
  close(note);
  close(theirs);
  while (waitpid(-1, NULL, 0) > 0) continue;
  _exit(0);
}

static void close_between(int first, unsigned last) {
  if (syscall(SYS_close_range, first, last, 0))
    for (int i = first; i < 4096 && (unsigned)i <= last; i++) close(i);
}

/* Close what the caller has open, as a pipe whose end it waits for; the standard streams say what goes wrong. */
static void close_all_but(const int *kept, int count) {
  for (unsigned from = 3, next; from; from = next + 1) {
    next = ~0u;
    for (int i = 0; i < count; i++)
      if (kept[i] >= (int)from && (unsigned)kept[i] < next) next = kept[i];
    if (next > from) close_between(from, next - (next != ~0u));
  }
}

/* Give up the standard streams, and the name and arguments of the command. */
static void detach(char **argv) {
  char *end = argv[0];
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (char **word = argv; *word; word++) end = *word + strlen(*word);
  memset(argv[0], 0, end - argv[0]);
  snprintf(argv[0], end - argv[0] + 1, KEEPER);
  prctl(PR_SET_NAME, KEEPER, 0, 0, 0);
  setsid();
  for (int i = 0; i < 3; i++) dup2(nothing, i);
  close(nothing);
}

static void be_keeper(char **argv, int note, int ready, const char *folder, const char *log, double idle) {
  const int kept[] = {note, ready, space};
  sigset_t child;
  close_all_but(kept, 3);
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, NULL);
  if (make_namespace()) not_mounted(strerror(errno), log);
  mount_layers(log);
  mount_others(-1, log);
  int theirs = move_to_container(folder);
  detach(argv);
  if (write(ready, servers, server_count * sizeof *servers) < 0) _exit(4);
  close(ready);
  keep(note, theirs, idle);
}

/* Let a process of its own make the container and keep it; this one joins it, as all others do. */
static void start_keeper(char **argv, int note, const char *note_path, const char *folder, const char *log) {
  int ends[2], made[sizeof servers / sizeof *servers], status = 0, idle = atoi(idle_s());
  if (pipe2(ends, O_CLOEXEC)) fail(4, of_limits(errno), "cannot start a process: %s", strerror(errno));
  int keeper = fork();
  if (keeper < 0) fail(4, of_limits(errno), "cannot start a process: %s", strerror(errno));
  if (keeper == 0) {
    int own = open(note_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW); /* the lock is that of the other */
    if (own < 0) fail(4, or_limits(errno, WRITABLE), "cannot open %s: %s", note_path, strerror(errno));
    be_keeper(argv, own, ends[1], folder, log, idle);
  }
  close(ends[1]);
  ssize_t size = read(ends[0], made, sizeof made);
  close(ends[0]);
  if (size <= 0) {
    waitpid(keeper, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status)) _exit(WEXITSTATUS(status)); /* it has said why */
    fail(4, NULL, "cannot make the container of %s: the process that keeps it was ended", root);
  }
  add_to_note(note, '+', keeper);
  for (size_t i = 0; i < size / sizeof *made; i++) add_to_note(note, '=', made[i]);
  if (!enter(keeper)) not_mounted("its container cannot be entered", log);
}
