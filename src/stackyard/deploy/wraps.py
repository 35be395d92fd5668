"""Wrapped images in a deploy: the present digest of each, so that the same image is not published twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import InputError
from stackyard.inputs.models import Bind, Site, Stack, Variant, Wrap
from stackyard.inputs.sites.library_directories import WRAPPED

if TYPE_CHECKING:
    from stackyard.deploy.deploy import Request


def pinned(request: Request) -> tuple[Stack, ...]:
    """The stacks of a deploy, with the digests of wrapped images and the site's settings for images if requested.

    Raises:
        InputError: no such image.
        StackyardError: an image cannot be read.
    """
    return tuple(
        stack.model_copy(update={"variants": tuple(_pinned(variant, stack, request) for variant in stack.variants)})
        if any(variant.wrap for variant in stack.variants)
        else stack
        for stack in request.stacks
    )


def _pinned(variant: Variant, stack: Stack, request: Request) -> Variant:
    if variant.wrap is None:
        return variant
    from stackyard.images.wrap import origin

    try:
        digest = origin.digest_of(variant.wrap, request, directory_of(stack))
        wrap = _with_site(variant.wrap.model_copy(update={"digest": digest}), request.site)
    except InputError as error:
        raise InputError(error.message, where=error.where or variant.place, hint=error.hint) from error
    return variant.model_copy(update={"wrap": wrap})


def directory_of(stack: Stack) -> Path:
    """The directory to which the paths in a stack's file are relative."""
    return Path(stack.file).parent


def _with_site(wrap: Wrap, site: Site) -> Wrap:
    """The site's settings for images (``launch: container:`` and its bindings), in place of the request for them.

    Of the options of a runtime's command only ``--nv`` has a meaning here.
    """
    if not wrap.host_bindings:
        return wrap
    policy = site.launch.container
    if policy.bindings:
        from stackyard.inputs.sites.bindings import load_bindings

        policy = load_bindings(Path(policy.bindings)).applied(policy, WRAPPED)
    variables = {**policy.variables, **wrap.environment}
    evaluated = [name for name, value in variables.items() if "$" in value]
    if evaluated:
        raise InputError(
            f"a variable with $ is not evaluated in a wrapped image: {', '.join(evaluated)}",
            hint="give it another value in the environment of `wrap`",
        )
    return wrap.model_copy(
        update={
            "bind": (*wrap.bind, *(_bind(text) for text in policy.binds)),
            "libraries": (*wrap.libraries, *policy.libraries),
            "environment": variables,
            "nv": wrap.nv or "--nv" in policy.options,
        }
    )


def _bind(text: str) -> Bind:
    source, target, options, *_ = [*text.split(":"), "", ""]
    return Bind(source=source, target=target or source, read_only="ro" in options.split(","))
