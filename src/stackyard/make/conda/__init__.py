"""The conda part of a prefix: fetched, unpacked and linked."""
