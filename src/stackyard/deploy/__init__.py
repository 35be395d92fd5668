"""From a stack's file to a published generation: what to build, in what order, and the atomic switch of one link."""

from stackyard import callable_room

callable_room(__name__)
