"""Mirrors: all files that locks need in one directory, for machines without access to other servers.

`read` serves builds from a mirror, `write` creates and extends one, `requires` finds the unlocked build requirements of
source packages, `pages` writes the indexes by which pip, uv and conda use a mirror too.

    DIR/mirror.json the sha256 of each file, the repository of each commit
    DIR/conda/<server>/<channel>/       a channel, with its repodata.json
    DIR/pip/files/                      wheels and source archives: a place for --find-links
    DIR/pip/simple/                     the same as an index (PEP 503)
    DIR/pip/links.html                  the same as a page of links, for a web server
    DIR/git/<server>/<repository>-<commit>.bundle
"""
