"""Verification of a stack before it is published."""

from stackyard import callable_room

callable_room(__name__)
