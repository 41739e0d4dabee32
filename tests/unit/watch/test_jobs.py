"""Which sources a watch asks: none that lets a tenant end the manager where nobody has agreed to it."""

from __future__ import annotations

import pytest

from bathyscope.errors import UsageError
from bathyscope.host.fake import FakeCephSession, FakeHost
from bathyscope.host.mgr_install import SAFE_VERSION as SAFE
from bathyscope.spec import Target
from bathyscope.spec.collect import CollectSpec
from bathyscope.spec.scope import Scope
from bathyscope.watch.drill_down import zoom
from bathyscope.watch.jobs import allowed_jobs


class TestWhatATenantCanEndTheManagerBy:
    """Counts of images are asked only where nobody but us, or only somebody who said so, runs the risk."""

    def asked(self, spec: CollectSpec, *modules: str, kind: str = "cluster", version: int = SAFE) -> set[str]:
        self.said: list[str] = []
        session = FakeCephSession({"osd dump": {"osds": []}})
        target = Target(name="c", conf="/etc/ceph/ceph.conf").model_copy(update={"kind": kind})
        scope = Scope(target=target, mgr_modules=modules, mgr_module_version=version if modules else None)
        found = allowed_jobs(session, spec, scope, self.said.append)
        return {job.source.name for job in found if job.source.plan(scope)} & {"image_counters", "mgr_counters"}

    def test_the_statistics_of_ceph_are_not_switched_on(self) -> None:
        assert self.asked(CollectSpec(depth="light")) == set()
        (words,) = self.said
        assert "`bathy mgr install`" in words
        assert "--image-statistics" in words

    def test_they_are_asked_where_the_operator_says_so_or_the_cluster_is_a_lab(self) -> None:
        assert self.asked(CollectSpec(depth="light", image_statistics=True)) == {"image_counters"}
        assert self.said == []
        assert self.asked(CollectSpec(depth="light"), kind="lab") == {"image_counters"}
        assert self.said == []

    def test_the_module_counts_and_the_statistics_are_not_asked_as_well(self) -> None:
        assert self.asked(CollectSpec(depth="light", image_statistics=True), "bathyscope") == {"mgr_counters"}
        assert self.said == []

    def test_a_module_that_can_be_ended_is_not_made_to_count(self) -> None:
        assert self.asked(CollectSpec(depth="light"), "bathyscope", version=SAFE - 1) == set()
        (words,) = self.said
        assert f"has version {SAFE - 1}" in words
        assert "`bathy mgr install` replaces it" in words

    def test_the_statistics_of_ceph_count_where_the_module_may_not_and_the_operator_says_so(self) -> None:
        spec = CollectSpec(depth="light", image_statistics=True)
        assert self.asked(spec, "bathyscope", version=SAFE - 1) == {"image_counters"}
        assert self.asked(CollectSpec(depth="light"), "bathyscope", version=SAFE - 1, kind="lab") == {"image_counters"}

    def test_single_objects_are_not_counted_by_a_module_that_can_be_ended(self) -> None:
        scope = Scope(target=Target(name="c"), mgr_modules=("bathyscope",), mgr_module_version=SAFE - 1)
        with pytest.raises(
            UsageError, match=f"is not asked: a client could end the manager through version {SAFE - 1}"
        ) as caught:
            zoom(FakeHost(), FakeCephSession(), scope, ["rbd/a"])
        assert caught.value.hint == "bathy mgr install"
