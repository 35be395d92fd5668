"""Where things live on disk, and how they are written so that a kill at any point leaves no half."""
