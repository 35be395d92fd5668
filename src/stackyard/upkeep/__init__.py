"""Maintenance of a yard after its revisions were published: collection, repair, transfer, extensions."""
