"""From a file to a published generation: what to build, in what order, and the one atomic flip."""

from stackyard import callable_room

callable_room(__name__)
