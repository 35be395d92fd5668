"""A prefix at another path, as it is in an image: texts, links and binary files get the new paths."""
