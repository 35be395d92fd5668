"""What a yard needs after its revisions were published: collection, repair, transfer, extensions."""
