"""What every page is made of: base template, styles, scripts, data, and a strict content security policy."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from bathyscope import __version__, chart_library
from bathyscope.views import as_text
from bathyscope.views.charts.base import VL_VERSION
from bathyscope.views.charts.theme import DARK, LIGHT, css_variables
from bathyscope.views.json import named
from bathyscope.views.labels import clean

# Colours of the page alone; those that charts share come from the theme.
_LIGHT = (
    "--page:#f4f6f8;--panel:#fff;--line:#dde3e8;--accent:#00609a;--accent-soft:#e4f0f8;--warning:#8a5a00;"
    "--warning-soft:#fdf3dc;--bad-soft:#fdeceb;--ok:#00694c;--ok-soft:#e0f4ec;"
    "--shadow:0 1px 2px rgb(16 32 48/.05),0 2px 8px rgb(16 32 48/.04);color-scheme:light;"
)
_DARK = (
    "--page:#0b1218;--panel:#111a22;--line:#22303b;--accent:#6fc1f2;--accent-soft:#12293a;--warning:#f0c25a;"
    "--warning-soft:#2a2210;--bad-soft:#331a1a;--ok:#5fd6ac;--ok-soft:#10291f;--shadow:none;color-scheme:dark;"
)


def render_page(finding: Any, template: str, variables: dict[str, Any], *, charts: Any, data: Any) -> str:
    """Return the page of a finding as one HTML document that fetches nothing.

    `template` is a file of this package that extends base.html.j2. `charts` is {"templates": …, "charts": …,
    "layers": …} for the script that draws. `data` is the finding, for the script and for download.
    """
    library, program, boot = chart_library.script(VL_VERSION), _asset("page.js"), _asset("boot.js")
    html = (
        _templates()
        .get_template(template)
        .render(
            **variables,
            version=__version__,
            policy=_policy(boot, library, program),
            css=_as_is(_css()),
            boot=_as_is(boot),
            library=_as_is(library),
            program=_as_is(program),
            charts_data=packed(charts),
            finding_data=packed(named(finding, data)),
            csv_data=packed(as_text(finding, "csv")),
        )
    )
    # Names in a cluster may contain characters that UTF-8 cannot encode.
    return html.encode("utf-8", "replace").decode()


def packed(value: Any) -> str:
    """Return a value as JSON, gzip, base64: a tenth of the size, and whatever the names hold it ends no element.

    page.js unpacks it with the browser's own DecompressionStream.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate has no UTF-8. The time in the header would make equal pages differ.
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 9, mtime=0)).decode()


def _as_is(text: str) -> Markup:
    """Return text of our own that the template must not escape."""
    return Markup(text)  # noqa: S704 - never called with a name from outside


def _cleaned(value: Any) -> Any:
    """Return what a template places: names come from the cluster, so all text but our own markup is cleaned."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _policy(*scripts: str) -> str:
    """Return the content security policy: these very scripts, styles of the page, nothing from anywhere else."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; form-action 'none'; base-uri 'none'"
    )


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _css() -> str:
    """Return the style sheet with the colours of both themes; print is always light."""
    light, dark = css_variables(LIGHT) + _LIGHT, css_variables(DARK) + _DARK
    return (
        f":root{{{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}\n" + _asset("page.css")
    )


def with_commands(sentence: str) -> Markup:
    """Return a sentence as markup in which what stands between backticks is code."""
    text = clean(sentence)
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(piece) if index % 2 else piece for index, piece in enumerate(pieces))


@functools.cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_cleaned,
        loader=jinja2.FunctionLoader(_asset),
    )  # fmt: skip
    templates.filters["with_commands"] = with_commands
    return templates
