"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

_HERE = Path(__file__).parent
_PARTS = {"css": "page.css", "charts": "charts.js", "script": "page.js"}


def render(numbers: dict[str, Any]) -> str:
    """The page of `numbers.collect`.

    Everything is inside: styles, scripts and data. The page forbids itself the network.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined
    )
    # "</script" in a name would end the element that holds the data.
    data = json.dumps(numbers, separators=(",", ":")).replace("<", "\\u003c")
    own = {name: Markup((_HERE / file).read_text("utf-8")) for name, file in _PARTS.items()}
    return environment.get_template("page.html").render(
        numbers=numbers,
        data=Markup(data),
        plotly=Markup(get_plotlyjs().replace("</script", "<\\/script")),
        **own,
    )
