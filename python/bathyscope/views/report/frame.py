"""What every page of ours is made of: styles, scripts, a strict content security policy, and writing it whole."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from bathyscope import __version__
from bathyscope.errors import StoreError
from bathyscope.views.charts.pictures import VL_VERSION
from bathyscope.views.charts.theme import DARK, LIGHT, css_variables
from bathyscope.views.report.data import json_for_html


def write_page(text: str, path: Path | str) -> Path:
    """Write a page to `path`, whole or not at all; return the path. Raises StoreError."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=".report-", delete=False
        ) as file:
            temporary = Path(file.name)
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                temporary.chmod(0o644)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}", hint="choose another place with -o") from error
    return path


def render_page(template: str, variables: dict[str, Any], *, charts: Any, finding: Any, csv: str) -> str:
    """Return a page as one HTML document that fetches nothing; `template` is a file of this package.

    `charts` is {"templates": …, "charts": …, "layers": …} for the script that draws; `finding` and `csv` can be
    downloaded.
    download.
    """
    library, program, boot = _library(), _asset("report.js"), _asset("boot.js")
    html = _template(template).render(
        **variables,
        version=__version__,
        policy=_policy(boot, library, program),
        css=_as_is(_css()),
        boot=_as_is(boot),
        library=_as_is(library),
        program=_as_is(program),
        charts_json=_as_is(json_for_html(charts)),
        finding_json=_as_is(json_for_html(finding)),
        csv_json=_as_is(json_for_html(csv)),
    )
    # Names of a cluster may hold what has no UTF-8.
    return html.encode("utf-8", "replace").decode()


def _as_is(text: str) -> Markup:
    """Return text of our own, or JSON made safe by `json_for_html`, that the template must not escape."""
    return Markup(text)  # noqa: S704 - never called with a name from outside


def _policy(*scripts: str) -> str:
    """Return the content security policy: these very scripts, styles of the page, nothing from anywhere else."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; form-action 'none'; base-uri 'none'"
    )


@functools.cache
def _library() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script; vl-convert brings them along."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;", vl_version=VL_VERSION)
    if "</script" in bundle or "<!--" in bundle:
        bundle = bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return bundle


def _asset(name: str) -> str:
    return resources.files("bathyscope.views.report").joinpath(name).read_text(encoding="utf-8")


def _css() -> str:
    """Return the style sheet with the chart colours of both themes; print is always light."""
    light, dark = css_variables(LIGHT), css_variables(DARK)
    return (
        f":root{{{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}\n" + _asset("report.css")
    )


@functools.cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja2.DictLoader({name: _asset(name), "macros": _asset("macros.html.j2")}),
    )  # fmt: skip
    template: Any = environment.get_template(name)
    return template  # type: ignore[no-any-return]
