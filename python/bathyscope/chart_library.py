"""Vega, Vega-Lite and vega-embed as one script for pages, which vl-convert carries.

To bundle it takes two seconds of a processor, as long as a run of many steps is read and judged. So the script is
kept, by the versions that it is made of: it is the same whenever and wherever it is asked for.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
from pathlib import Path

from bathyscope import __version__, files
from bathyscope.errors import UntrustedError


@functools.cache
def script(vl_version: str) -> str:
    """Return the script of this version of Vega-Lite, which defines `vegaEmbed` and cannot end its element.

    It is made anew where nothing can be kept, and where others could have changed what is.
    """
    name = f"vega-embed-{vl_version}-{importlib.metadata.version('vl-convert-python')}-{__version__}.js"
    path: Path | None = None
    # RuntimeError: nobody knows where this user's home is.
    with contextlib.suppress(OSError, UntrustedError, UnicodeDecodeError, RuntimeError):
        path = files.own_directory(files.cache_directory(), make=True) / name
        return files.read_own(path).decode()
    import vl_convert  # noqa: PLC0415 - takes its time, and is not needed for a kept script

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;", vl_version=vl_version)
    made = bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    if path is not None:
        with contextlib.suppress(OSError):
            files.write_file(path, made.encode())
    return made
