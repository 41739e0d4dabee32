"""What options make of a target: where nodes' figures come from, and by which words Ceph's programs are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bathyscope.commands.targets import find_target, prometheus_access, with_nodes, with_prefix, with_resolvers
from bathyscope.errors import ParseError, UsageError
from bathyscope.spec import PrometheusAccess, SshAccess, Target

URL = "http://mon1:9095"
TARGET = Target(name="t")


def test_a_prometheus_is_named_by_its_url_and_labels(tmp_path: Path) -> None:
    (tmp_path / "auth").write_text("u:p\n")
    access = prometheus_access(f"{URL}/prefix", auth=tmp_path / "auth", labels=["cluster=a=b", "x="])
    assert access == PrometheusAccess(
        url=f"{URL}/prefix", auth=str(tmp_path / "auth"), match={"cluster": "a=b", "x": ""}
    )
    assert prometheus_access("https://[fd00::1]:9095/", auth=None, labels=[]) is not None
    assert prometheus_access(None, auth=None, labels=[]) is None


@pytest.mark.parametrize(
    "url", ["mon1:9095", "ftp://mon1", "http://", "http://u:secret@mon1", f"{URL}/?secret", "http://a b", f"{URL}\n"]
)
def test_an_address_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError, match="--prometheus must be") as raised:
        prometheus_access(url, auth=None, labels=[])
    assert "secret" not in raised.value.message + str(raised.value.hint)


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    for auth, labels in ((tmp_path, []), (None, ["a=b"])):
        with pytest.raises(UsageError, match="need --prometheus"):
            prometheus_access(None, auth=auth, labels=labels)
    for label in ("a", "=b", "1a=b", 'a"=b'):
        with pytest.raises(UsageError, match=r"--prometheus-match|is not a valid label"):
            prometheus_access(URL, auth=None, labels=[label])
    with pytest.raises(UsageError, match="cannot be read"):
        prometheus_access(URL, auth=tmp_path / "none", labels=[])


def test_a_figure_of_a_node_comes_from_one_place() -> None:
    ssh, prometheus = SshAccess(), PrometheusAccess(url=URL)
    with pytest.raises(UsageError, match="over ssh and from a Prometheus"):
        with_nodes(TARGET, ssh, prometheus)
    with pytest.raises(UsageError, match="over ssh and from a Prometheus"):
        with_nodes(TARGET.model_copy(update={"ssh": ssh, "prometheus": prometheus}), None, None)
    # An option counts more than a target's own way.
    changed = with_nodes(TARGET.model_copy(update={"ssh": ssh}), None, prometheus)
    assert (changed.ssh, changed.prometheus) == (None, prometheus)
    assert with_nodes(changed, None, None) == changed


def test_a_prefix_is_words_and_no_shell() -> None:
    changed = with_prefix(TARGET, "kubectl -n 'rook ceph' exec -i $(x);y --")
    assert changed.ceph_prefix == ("kubectl", "-n", "rook ceph", "exec", "-i", "$(x);y", "--")
    assert with_prefix(changed, None) == changed
    assert with_prefix(changed, "").ceph_prefix == ()
    with pytest.raises(UsageError, match="cannot be split"):
        with_prefix(TARGET, "a 'b")
    with pytest.raises(UsageError, match="in the root file system /r"):
        with_prefix(TARGET.model_copy(update={"root": "/r"}), "cephadm shell --")


def test_a_target_file_has_both(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        f"name: c\nceph_prefix: [cephadm, shell, --]\nprometheus: {{url: '{URL}', match: {{cluster: a}}}}\n"
    )
    found = find_target(file=tmp_path / "t.yaml")
    assert found.ceph_prefix == ("cephadm", "shell", "--")
    assert found.prometheus == PrometheusAccess(url=URL, match={"cluster": "a"})
    (tmp_path / "t.yaml").write_text("name: c\nprometheus: {url: 'http://u:p@h'}\n")
    with pytest.raises(UsageError, match=r"prometheus\.url"):
        find_target(file=tmp_path / "t.yaml")


def test_who_has_the_images_is_asked_where_the_options_say(tmp_path: Path) -> None:
    uris = ("qemu:///system", "qemu+ssh://root@kvm1/system")
    file = tmp_path / "who.csv"
    file.write_text("image,host,vm\nrbd/a,kvm1,web\n")
    found = with_resolvers(TARGET, uris, "kubectl --context 'a b'", file)
    assert (found.libvirt, found.kubectl, found.attachments) == (uris, ("kubectl", "--context", "a b"), str(file))
    # What the target's file says stays.
    assert with_resolvers(found, (), None, None) == found
    with pytest.raises(UsageError, match="got '-oProxyCommand=x'"):
        with_resolvers(TARGET, (uris[0], "-oProxyCommand=x"), None, None)
    for words in ("'", ""):
        with pytest.raises(UsageError, match="--kubectl"):
            with_resolvers(TARGET, (), words, None)
    file.write_text("image,host\nrbd/a\n")
    with pytest.raises(ParseError, match="line 2"):
        with_resolvers(TARGET, (), None, file)
    with pytest.raises(UsageError, match=r"none\.csv cannot be read"):
        with_resolvers(TARGET, (), None, tmp_path / "none.csv")
