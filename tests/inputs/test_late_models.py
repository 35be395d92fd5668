"""`inputs.reading.latemodel`: what is accepted without pydantic is what pydantic makes of it, in the same class."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stackyard.inputs import models
from stackyard.inputs.reading.acceptance import UnclearValue
from stackyard.inputs.reading.latemodel import LateModel
from stackyard.inputs.sites import jobmodels, sitemodels
from stackyard.inputs.sites.sitemodels import Gpu, NodeKind, Site
from stackyard.inputs.stacks import stackfile
from stackyard.launch.request import intent, roles
from stackyard.launch.request.intent import BatchOptions, Intent

MODELS = sorted(
    {each for module in (jobmodels, sitemodels, models, stackfile, intent, roles) for each in vars(module).values()
     if isinstance(each, type) and issubclass(each, LateModel) and each is not LateModel},
    key=lambda each: each.__name__,
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 300_000), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from(["", "0022", "022\n", "lua", "slurm", "cpu", "linux-64", "A_B", "a b", "begin", "/a", "x{y}"]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from(["A", "count", "cores", "program", "name", "a b"]), inner, max_size=2),
    ), max_leaves=4,
)  # fmt: skip


def _by_pydantic(model: Any, values: dict[str, Any]) -> Any:
    return model._reader().validate_python(values)


@pytest.mark.parametrize("model", MODELS, ids=lambda each: each.__name__)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_accepts_only_what_pydantic_makes_the_same_of(model: Any, data: st.DataObject) -> None:
    values = {
        name: data.draw(VALUES, label=name) for name in data.draw(st.sets(st.sampled_from([*model.model_fields])))
    }
    for part in ({}, values, *({name: value} for name, value in values.items())):
        try:
            made = model.model_accept(part)
        except (UnclearValue, ValueError):
            continue
        other = _by_pydantic(model, part)
        assert (type(made), repr(made), made) == (type(other), repr(other), other)
        assert made.model_fields_set == other.model_fields_set
        for how in ({"mode": "json"}, {"mode": "json", "exclude_defaults": True}, {"exclude": {*[*part][:1]}}):
            assert made.model_dump(**how) == made._reader().dump_python(made, **how)


def test_is_a_model_like_any_other() -> None:
    site = Site.model_validate({"nodes": {"cpu": {"cores": "32"}}, "permissions": {"umask": "0027"}})
    assert (site.nodes["cpu"], type(site.nodes["cpu"]), site.permissions.umask) == (
        NodeKind(cores=32),
        NodeKind,
        "0027",
    )
    assert site.model_fields_set == {"nodes", "permissions"}
    assert site.model_dump(exclude_unset=True) == {"nodes": {"cpu": {"cores": 32}}, "permissions": {"umask": "0027"}}
    assert site == copy.deepcopy(site) == pickle.loads(pickle.dumps(site)) != Site()
    assert Site.model_validate_json(site.model_dump_json().encode()) == site
    assert site.model_copy(update={"name": "a"}).model_fields_set == {"nodes", "permissions", "name"}
    assert hash(Gpu(count=1)) == hash(Gpu(count=1)) != hash(Gpu(count=2))
    with pytest.raises(AttributeError, match="immutable"):
        site.name = "b"
    for wrong in ({"nodes": 0}, {"no": 1}, {"nodes": 2, "least_nodes": 3}, {"batch": {"queue": "a\nb"}}):
        with pytest.raises(pydantic.ValidationError):
            Intent.model_validate(wrong)


def test_a_part_of_it_as_plain_values() -> None:
    site = Site.model_validate({"name": "a", "modules": {"family": "f", "formats": ["lua"]}, "user_paths": {}})
    for include in ({"name", "pins"}, {"name": True, "modules": {"family", "naming"}, "user_paths": True}):
        for lean in (True, False):
            how = {"mode": "json", "include": include, "exclude_defaults": lean}
            assert site.model_dump(**how) == site._reader().dump_python(site, **how)


@pytest.mark.parametrize("module", [models, stackfile], ids=lambda each: each.__name__)
def test_numbers_are_dumped_as_they_are_hashed(module: Any) -> None:
    """pydantic writes 10 as 10.0 where a field is a float; the hash of a check, which records have, is of that."""
    for model in (each for each in MODELS if each.__module__ == module.__name__):
        floats = [field for field in model.model_fields.values() if field.annotation is float]
        assert all(type(field.default) is float for field in floats), model
    assert json.dumps(models.Check(name="a", timeout_min=3).model_dump(mode="json")["timeout_min"]) == "3.0"


def test_does_without_pydantic_where_it_can() -> None:
    text = f"""
import json, sys
from stackyard.launch.request.intent import Intent, made
from stackyard.inputs.sites.sitemodels import Site
assert made(Intent, {{"program": ("a",), "nodes": 4, "variables": {{"A": "b"}}, "batch": {{"time_min": 3}}}}).nodes == 4
assert Site.model_validate_json({Site(nodes={"cpu": NodeKind(cores=4)}).model_dump_json()!r}).nodes["cpu"].cores == 4
assert not {{"pydantic", "pydantic_core", "importlib.metadata"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_fields_say_what_they_are() -> None:
    strict = {name: field.description for name, field in BatchOptions.model_fields.items()}
    assert strict["time_min"] == "Wall time in minutes"
    assert BatchOptions.model_fields["pack"].annotation.__args__ == ("", "racks")
