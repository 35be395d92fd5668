"""The door of `expose`: modules, kernels and hooks for users."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.expose.commands import example as example_command
    from stackyard.expose.hooks import hook as usage_hook
    from stackyard.expose.kernel import Kernel as Kernel
    from stackyard.expose.kernel import install as install_kernel
    from stackyard.expose.kernel import installed as installed_kernels
    from stackyard.expose.kernel import is_gone as is_kernel_gone
    from stackyard.expose.kernel import name_for as kernel_name
    from stackyard.expose.kernel import prefix_directory as kernel_prefix_directory
    from stackyard.expose.kernel import python_of as kernel_python
    from stackyard.expose.kernel import remote_specification as remote_kernel_specification
    from stackyard.expose.kernel import remove as remove_kernel
    from stackyard.expose.kernel import require_ipykernel as require_ipykernel
    from stackyard.expose.kernel import specification as kernel_specification
    from stackyard.expose.kernel import user_directory as kernel_user_directory
    from stackyard.expose.modulefiles.lua import render_page as render_lua_page
    from stackyard.expose.modulefiles.page import Page as Page
    from stackyard.expose.modulefiles.tcl import render_page as render_tcl_page
    from stackyard.expose.notes import module_notes as module_notes
    from stackyard.expose.published import change_of as change_of
    from stackyard.expose.root import users_path as users_path
else:
    __getattr__, __dir__ = door(__file__, __name__)
