/* What the launcher does for a wrapped image, one whose own system its commands need (compiled with -DCONTAINER).
 *
 * The image is mounted as that of any revision, in a namespace of this user. Then a new root is made of it: an empty
 * tmpfs with the image's directories, the host's that the mode asks for, and what is bound by name; and the process
 * moves there (pivot_root). Who comes later joins: two system calls. `.container` says how, a line each:
 *
 *   mode host|isolated      bind SOURCE<tab>TARGET<tab>ro|rw      env NAME=VALUE      path DIRECTORY:...
 *   holds NAME:... (for container.sh: the image's directories that are not empty)
 *   directory PATH          probe PATH (of the image: whether it can be read)         library PATTERN
 *   venv TREE<tab>FILE<tab>PATH (the settings of a virtual environment of the image: FILE has those but for `home`,
 *                                which is TREE/bin; both are below the prefix)
 *
 * An image of several partitions has more of them (layers.c).
 *
 * Everything is done by the rights that a user has in a user namespace of the own; the user's number stays.
 *   before SHELL (of the image, which reads prefix/.before before each command)
 *   python PATH<tab>REAL (the interpreter of one, which this program replaces by itself)
 */
#define LIBRARIES "/.stackyard/libs"
#define REPLACED "/.stackyard/own" /* below it the programs that this one stands for, by its paths */
#define MOST_SETTINGS 4095
#define NESTED "a command of another image cannot be started in the container of %s"

static char conf[1 << 17];
static char *settings[MOST_SETTINGS + 1];

/* Read the settings; the text is cut into lines in place. */
static void read_settings(const char *name) {
  char path[PATH_MAX], *line, *rest = conf;
  int n = 0;
  join_path(path, root, name);
  ssize_t size = slurp(path, conf, sizeof conf);
  if (size < 0) fail(4, RESTORE, "cannot read %s: %s", path, strerror(errno));
  while ((line = strsep(&rest, "\n")) && n < MOST_SETTINGS) settings[n++] = line;
  if (line || size == sizeof conf - 1) fail(4, RESTORE, "more than %d settings: %s", MOST_SETTINGS, path);
}

/* The value of the next setting of this name, or NULL. */
static char *setting(const char *name, int *at) {
  size_t length = strlen(name);
  for (; settings[*at]; ++*at)
    if (!strncmp(settings[*at], name, length) && settings[*at][length] == ' ') return settings[(*at)++] + length + 1;
  return NULL;
}

static char *one_setting(const char *name) {
  int at = 0;
  return setting(name, &at);
}

static int is_isolated(void) {
  char *mode = one_setting("mode");
  return mode && !strcmp(mode, "isolated");
}

/* Whether the image of a server's namespace can be read: a server may have been killed, or be about to end. */
static int is_alive(int pid) {
  char path[PATH_MAX + NAME];
  struct stat found;
  char *probe = one_setting("probe");
  snprintf(path, sizeof path, "/proc/%d/root%s", pid, probe ? probe : "/");
  return stat(path, &found) == 0;
}

#include "newroot.c"

/* PATH: the image's directories come where the revision's is, or first: what lies before it is the user's own. */
static void set_path(const char *inside) {
  char own[PATH_MAX], *all = NULL, *path = getenv("PATH");
  join_path(own, root, "prefix/bin");
  size_t length = strlen(own);
  char *at = path ? strstr(path, own) : NULL;
  if (at && ((at != path && at[-1] != ':') || (at[length] && at[length] != ':'))) at = NULL;
  char *rest = at ? at + length + (at[length] == ':') : path;
  int size = asprintf(&all, "%.*s%s:%s%s%s", at ? (int)(at - path) : 0, path ? path : "", own, inside,
                      rest && *rest ? ":" : "", rest ? rest : "");
  if (size > 0) setenv("PATH", all, 1);
}

/* A variable of the image; the libraries of the host are found behind its own. */
static void set_variable(const char *name, const char *value) {
  char *all = NULL;
  if (!strcmp(name, "LD_LIBRARY_PATH") && *value && getenv(name) && !strstr(value, LIBRARIES) && asprintf(&all, "%s:%s", value, LIBRARIES) > 0)
    value = all;
  setenv(name, value, 1);
  free(all);
}

static int entered; /* whether this process has come into the container from outside */

/* The environment of the image: none of the host's loader settings, which name libraries of another system. */
static void set_environment(void) {
  static const char *const leaves[] = {"LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "PYTHONHOME", NULL};
  char *line, *value, name[NAME];
  const char *inside = getenv("STACKYARD_CONTAINER");
  int at = 0;
  if (inside && !strcmp(inside, root)) return; /* a command of the container's: all is as it was set */
  for (int i = 0; leaves[i]; i++) unsetenv(leaves[i]);
  if (!access(LIBRARIES, F_OK)) setenv("LD_LIBRARY_PATH", LIBRARIES, 1);
  while ((line = setting("env", &at))) {
    if (!(value = strchr(line, '=')) || value - line >= NAME) continue;
    snprintf(name, sizeof name, "%.*s", (int)(value - line), line);
    set_variable(name, value + 1);
  }
  if ((line = one_setting("path"))) set_path(line);
  setenv("STACKYARD_CONTAINER", root, 1);
  entered = 1;
}

/* The caller's working directory, where the container has it: another one at its path has other files. */
static void return_to(const char *cwd, const struct stat *before) {
  struct stat now;
  char *own = one_setting("directory");
  if (cwd && !chdir(cwd) && !stat(".", &now) &&
      (!before || (now.st_dev == before->st_dev && now.st_ino == before->st_ino) || !strcmp(cwd, "/")))
    return;
  if (!is_isolated())
    fail(126, "start it in another directory, or wrap the image with --bind of this one",
         "the working directory %s is not in the container of %s: the image has its own", cwd ? cwd : "", root);
  if ((!own || chdir(own)) && chdir("/")) fail(126, NULL, "cannot enter /: %s", strerror(errno));
}

/* In a container that Apptainer has made. */
static void arrive(const char *cwd) {
  read_settings("prefix/.container");
  return_to(cwd, NULL);
  set_environment();
}

/* The command that a path names: its link in the directory of our commands. How many links lead there; -1: none does. */
static int command_of(const char *path, char *name) {
  char at[PATH_MAX], leads[PATH_MAX], above[PATH_MAX], own[PATH_MAX];
  struct stat ours, here;
  join_path(own, root, "prefix/bin");
  if (stat(own, &ours) || snprintf(at, sizeof at, "%s", path) >= (int)sizeof at) return -1;
  for (int hops = 0; hops < 40; hops++) {
    char *last = strrchr(at, '/');
    snprintf(above, sizeof above, "%.*s", last ? (int)(last - at) : 1, last ? at : ".");
    if (!stat(*above ? above : "/", &here) && here.st_dev == ours.st_dev && here.st_ino == ours.st_ino)
      return snprintf(name, NAME, "%s", last ? last + 1 : at) < NAME ? hops : -1;
    ssize_t size = readlink(at, leads, sizeof leads - 1);
    if (size < 0) return -1;
    leads[size] = 0;
    if (*leads == '/') strcpy(at, leads);
    else join_path(at, above, leads);
  }
  return -1;
}

/* What stands for a program of the image, started by this path, is that program. */
static void become(const char *own, const char *path, char **argv) {
  char place[PATH_MAX], leads[PATH_MAX];
  if (snprintf(place, sizeof place, "%s%s", REPLACED, own) >= (int)sizeof place) return;
  ssize_t size = readlink(place, leads, sizeof leads - 1);
  if (size < 0) return;
  leads[size] = 0;
  if (argv[0] && !strchr(argv[0], '/')) argv[0] = strdup(path);
  give_back();
  execv(leads, argv);
  fail(errno == ENOENT ? 127 : 126, NULL, "%s: %s", leads, strerror(errno));
}

/* Whether the words are those of `python -m venv`. */
static int makes_environment(char **argv) {
  for (int i = 1; argv[0] && argv[i] && *argv[i] == '-'; i++) {
    if (!strcmp(argv[i], "-mvenv")) return 1;
    if (!strcmp(argv[i], "-m")) return argv[i + 1] && !strcmp(argv[i + 1], "venv");
    if (!strcmp(argv[i], "-c") || !argv[i][1]) return 0;
    if ((!strcmp(argv[i], "-X") || !strcmp(argv[i], "-W")) && !argv[++i]) return 0;
  }
  return 0;
}

/* The path by which a command starts, and finds its files (images/wrap/starts.py): its own in the image, or one below
 * the prefix, of an interpreter of Python, which a virtual environment links to: that keeps the name it has been
 * started by. */
static const char *own_path(const char *path, char **argv) {
  static char own[PATH_MAX];
  char name[NAME], leads[PATH_MAX], place[PATH_MAX];
  int hops = command_of(path, name);
  if (hops < 0 || snprintf(place, sizeof place, "%s/prefix/.own/%s", root, name) >= (int)sizeof place) return path;
  ssize_t size = readlink(place, leads, sizeof leads - 1);
  if (size < 0) return path;
  leads[size] = 0;
  if (*leads == '/') snprintf(own, sizeof own, "%s", leads);
  else if (snprintf(own, sizeof own, "%s/prefix/%s", root, leads + strlen("../")) >= (int)sizeof own) return path;
  if (*leads == '/' && makes_environment(argv)) {
    if (snprintf(place, sizeof place, "%s/prefix/.makes/%s", root, name) < (int)sizeof place && (size = readlink(place, leads, sizeof leads - 1)) > 0) {
      leads[size] = 0;
      snprintf(own, sizeof own, "%s/prefix/%s", root, leads + strlen("../"));
    }
  }
  const char *called = argv[0] ? argv[0] : "", *end = strrchr(called, '/'), *last = strrchr(path, '/');
  if (*called && !strcmp(end ? end + 1 : called, last ? last + 1 : path)) argv[0] = *leads != '/' && hops ? strdup(path) : own;
  return own;
}

#include "layers.c"

/* Make the container of an image that is one SquashFS file: its server is in there too. */
static void make_container(int note, const char *folder, const char *log) {
  char path[PATH_MAX];
  if (make_namespace()) not_mounted(strerror(errno), log);
  join_path(path, root, "prefix/.inside");
  if ((links = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) stop("open", path);
  if ((serving = mount_image(root, log)) < 0) not_mounted("its file system server ended", log);
  mount_others(note, log);
  join_path(path, root, "prefix");
  enter_container(folder, path);
  add_to_note(note, 0, serving);
  serving = 0;
}

/* Let a shell of the image read the script that is to be read before each command, and then become the command. What the
 * script prints is not the command's output. */
static void run_before(const char *path, char **argv, const char *own) {
  char *shell = entered ? one_setting("before") : NULL, script[PATH_MAX], leads[PATH_MAX];
  int count = 0, size = 0;
  if (!shell) return;
  join_path(script, root, "prefix/.before");
  while (argv[count]) count++;
  char **words = calloc(count + 6, sizeof *words);
  if (!words) fail(126, NULL, "%s", strerror(errno));
  words[size++] = "sh";
  words[size++] = "-c";
  words[size++] = ". \"$0\" >&2\nexec \"$@\"";
  words[size++] = script;
  if (path) words[size++] = (char *)(realpath(path, leads) && !strcmp(leads, own) ? path : own_path(path, argv));
  for (int i = 1; i < count; i++) words[size++] = argv[i];
  execv(shell, words);
  fail(126, NULL, "%s: %s", shell, strerror(errno));
}

static void mount_here(char **argv, const char *asked_for) {
  char folder[PATH_MAX], path[PATH_MAX], log[PATH_MAX], *cwd = get_current_dir_name();
  struct stat before;
  if (stat(".", &before)) memset(&before, 0, sizeof before);
  read_settings("prefix/.inside/.container");
  open_folder(folder);
  hold_space();
  int note = lock_note(folder, path);
  snprintf(log, sizeof log, "%.*s.log", PATH_MAX - 8, path);
  if (!join_note(note)) {
    if ((ftruncate(note, 0) || unlink(log)) && errno != ENOENT) fail(4, NULL, "%s: %s", path, strerror(errno));
    if (getenv("STACKYARD_CONTAINER")) fail(4, "start it outside, or put both into one image", NESTED, getenv("STACKYARD_CONTAINER"));
    const char *why = lacking();
    if (!why && is_layered()) why = lacking_overlay(folder);
    if (why && damage_of(root)) not_mounted(why, log);
    if (why) by_apptainer(folder, log, why, argv, asked_for);
    if (is_layered()) start_keeper(argv, note, path, folder, log);
    else make_container(note, folder, log);
  }
  if (is_layered()) futimens(note, NULL);
  close(note);
  return_to(cwd, &before);
  set_environment();
  free(cwd);
}
