/* The image of an adopted prefix: the files in it name each other by the path that the prefix had (first lines of scripts,
 * compiled-in paths), so the image is seen there too, in the namespace in which it is mounted. A directory has to be
 * there, in which other files may be now; who owns what is above it may put a link in its place.
 */
#define CANNOT "cannot mount %s/image.sqsh on %s, by which its files name each other: "

static char original[2 * PATH_MAX]; /* `given` and `real` are in it */
static char *given, *real;

/* Whether the image of a revision was packed from a prefix that was adopted. The files in it name that by the path as it
 * was given, and without links that is another one: lock/original has both. */
static int has_original(const char *revision) {
  char path[PATH_MAX], *rest = original;
  join_path(path, revision, "lock/original");
  ssize_t size = slurp(path, original, sizeof original);
  if (size < 0 && errno == ENOENT) return 0;
  if (size < 0) *original = 0;
  given = strsep(&rest, "\n");
  real = rest ? strsep(&rest, "\n") : given;
  return 1;
}

/* Open a directory by a path without links: what another account has put in its place is not followed. */
static int open_without_links(const char *path) {
  char copy[PATH_MAX], *rest = copy, *name;
  int folder = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  snprintf(copy, sizeof copy, "%s", *path == '/' ? path + 1 : "");
  while (folder >= 0 && (name = strsep(&rest, "/"))) {
    int next = openat(folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), why = errno;
    close(folder);
    folder = next;
    errno = why;
  }
  return folder;
}

static int is_same_place(const char *one, const char *other) {
  struct stat a, b;
  return !stat(one, &a) && !stat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Show the mounted image of an adopted prefix at its original path too, where its files look for each other; 0: it cannot
 * be, which is said and ends this program if it is the revision that is to be used. */
static int show_at_original(const char *revision) {
  char prefix[PATH_MAX], place[NAME];
  struct statfs about;
  if (!has_original(revision)) return 1;
  is_shown |= !strcmp(revision, root);
  join_path(prefix, revision, "prefix");
  if (is_same_place(prefix, given)) return 1;
  while (statfs(real, &about) && errno == ENOTCONN) /* the mount of a server that has ended */
    if (umount2(real, MNT_DETACH | UMOUNT_NOFOLLOW)) break;
  int folder = open_without_links(real);
  snprintf(place, sizeof place, "/proc/self/fd/%d", folder);
  int bound = folder >= 0 && !mount(prefix, place, NULL, MS_BIND, NULL), why = errno;
  if (folder >= 0) close(folder);
  if (bound && is_same_place(prefix, given)) return 1;
  if (bound) umount2(real, MNT_DETACH | UMOUNT_NOFOLLOW);
  if (strcmp(revision, root)) return 0;
  if (!bound && why == ENOENT)
    fail(4, "make the directory, which can be empty: mkdir -p DIRECTORY", CANNOT "not found", root, real);
  if (!bound && why != ENOTDIR && why != ELOOP)
    fail(4, or_limits(why, "see which accounts may enter it: namei -l DIRECTORY"), CANNOT "%s", root, real, strerror(why));
  fail(4, "let the path lead where it led, or adopt it where it is now: stackyard adopt --image DIRECTORY",
       CANNOT "the path now leads elsewhere", root, bound ? given : real);
  return 0;
}
