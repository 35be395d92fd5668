"""All scenes."""

from __future__ import annotations

import boxes
import cluster
import laptop
import studies
import users
import yards

SCENES = (*laptop.SCENES, *cluster.SCENES, *yards.SCENES, *boxes.SCENES, *studies.SCENES, *users.SCENES)
