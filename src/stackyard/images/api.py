"""The door of `images`: bases, images in OCI layouts and SIF files, mounts, and the host's libraries in images."""

from typing import TYPE_CHECKING

from stackyard.core.doors import door

if TYPE_CHECKING:
    from stackyard.images.bases.compile import Packages as Packages
    from stackyard.images.bases.compile import of_variant as packages_of_variant
    from stackyard.images.bases.container import ContainerSetup as ContainerSetup
    from stackyard.images.bases.extend import Proof as Proof
    from stackyard.images.bases.extend import extend as extend_base
    from stackyard.images.bases.extend import python_of as python_of_base
    from stackyard.images.bases.fit import findings as base_findings
    from stackyard.images.bases.model import ARCHITECTURES as ARCHITECTURES
    from stackyard.images.bases.sources import Source as Source
    from stackyard.images.bases.sources import source_of as source_of
    from stackyard.images.bases.store import BaseImport as BaseImport
    from stackyard.images.bases.store import StoredBase as StoredBase
    from stackyard.images.bases.store import add as import_base
    from stackyard.images.bases.store import check as check_base
    from stackyard.images.bases.store import everything as all_bases
    from stackyard.images.bases.store import find as find_base
    from stackyard.images.bases.store import named as base_named
    from stackyard.images.bindings.check import BindingReport as BindingReport
    from stackyard.images.bindings.check import BindingRequest as BindingRequest
    from stackyard.images.bindings.check import check as check_bindings
    from stackyard.images.bindings.check import drivers_of as drivers_of
    from stackyard.images.bindings.detect import detect as detect_bindings
    from stackyard.images.bindings.drivers import of_machine as drivers_of_machine
    from stackyard.images.bindings.maps import Rank as Rank
    from stackyard.images.bindings.maps import run_ranks as run_ranks
    from stackyard.images.bindings.profiles import expanded as expanded_bindings
    from stackyard.images.bindings.profiles import missing_here as missing_here
    from stackyard.images.bindings.profiles import of_this_machine as bindings_of_this_machine
    from stackyard.images.bindings.profiles import profile_names as profile_names
    from stackyard.images.bindings.profiles import read_profile as read_profile
    from stackyard.images.bindings.profiles import tested as tested_bindings
    from stackyard.images.bindings.repair import repaired as repaired_bindings
    from stackyard.images.bindings.trace import traced as traced_bindings
    from stackyard.images.bindings.tree import Tree as Tree
    from stackyard.images.bindings.written import as_change as bindings_change
    from stackyard.images.bindings.written import bindings_text as bindings_text
    from stackyard.images.bindings.written import container_text as container_text
    from stackyard.images.bindings.written import module_summary as bindings_summary
    from stackyard.images.bindings.written import stack_text as stack_text
    from stackyard.images.oci.artefact import Fit as Fit
    from stackyard.images.oci.artefact import fit_of as fit_of
    from stackyard.images.oci.artefact import pack as pack_revision
    from stackyard.images.oci.artefact import read as read_packed
    from stackyard.images.oci.artefact import require_sendable as require_sendable
    from stackyard.images.oci.base import SCRATCH as SCRATCH_BASE
    from stackyard.images.oci.build import BuiltImage as BuiltImage
    from stackyard.images.oci.build import OciRequest as OciRequest
    from stackyard.images.oci.build import build as build_image
    from stackyard.images.oci.build import name_of as image_name
    from stackyard.images.oci.build import verified as verified_image
    from stackyard.images.oci.check import problems as image_problems
    from stackyard.images.oci.layers import Compression as Compression
    from stackyard.images.oci.layout import PACKAGES as PACKAGES_LABEL
    from stackyard.images.oci.layout import TITLE as TITLE_LABEL
    from stackyard.images.oci.layout import Image as Image
    from stackyard.images.oci.layout import Reference as Reference
    from stackyard.images.oci.layout import image as read_image
    from stackyard.images.oci.layout import is_reference as is_reference
    from stackyard.images.oci.layout import reference as reference
    from stackyard.images.oci.layout import tag as image_tag
    from stackyard.images.oci.sqsh import WrittenSqsh as WrittenSqsh
    from stackyard.images.oci.sqsh import write as write_sqsh
    from stackyard.images.oci.transfer import Registry as Registry
    from stackyard.images.oci.transfer import notes_of as notes_of_image
    from stackyard.images.oci.transfer import pull as pull_image
    from stackyard.images.oci.transfer import push as push_image
    from stackyard.images.recipe.write import Recipe as Recipe
    from stackyard.images.recipe.write import files as recipe_files
    from stackyard.images.relocation.paths import ROOT as IMAGE_ROOT
    from stackyard.images.sif.build import SifRequest as SifRequest
    from stackyard.images.sif.build import build as build_sif
    from stackyard.images.sif.build import build_base as build_base_sif
    from stackyard.images.sif.build import check as check_sif
    from stackyard.images.sif.build import labels_of as sif_labels
    from stackyard.images.sif.file import read as read_sif
    from stackyard.images.sif.sign import how_to_verify as how_to_verify_sif
    from stackyard.images.sif.sign import require as require_sif_key
    from stackyard.images.squashfs.bykernel import HELPER as AUTOFS_HELPER
    from stackyard.images.squashfs.bykernel import autofs_maps as autofs_maps
    from stackyard.images.squashfs.enter import run_within as run_within_image
    from stackyard.images.squashfs.file import superblock as superblock
    from stackyard.images.squashfs.mounts import mount as mount_image
    from stackyard.images.squashfs.mounts import mounted as mounted_image
    from stackyard.images.squashfs.mounts import require_readable as require_readable_image
    from stackyard.images.squashfs.mounts import unmount as unmount_image
    from stackyard.images.squashfs.mounts import unusable as why_unusable
    from stackyard.images.squashfs.mounts import ways as mount_ways
    from stackyard.images.squashfs.possible import require_packing as require_packing
    from stackyard.images.squashfs.servers import silent as silent_servers
else:
    __getattr__, __dir__ = door(__file__, __name__)
