# SPDX-License-Identifier: GPL-2.0-or-later
"""A small document, written as Markdown and as one HTML page from the same
parts, so that both say the same."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import List, NamedTuple, Sequence, Tuple, Union


class Link(NamedTuple):
    text: str
    href: str


class Grey(NamedTuple):
    """A difference that may be noise."""

    text: str


class Strong(NamedTuple):
    """A difference that is none."""

    text: str
    good: bool


Span = Union[str, Link, Grey, Strong]
Spans = Tuple[Span, ...]


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    anchor: str = ""


@dataclass(frozen=True)
class Paragraph:
    spans: Spans
    warning: bool = False


@dataclass(frozen=True)
class Bullets:
    items: Sequence[Spans]


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[Spans]]


@dataclass(frozen=True)
class Picture:
    path: str
    text: str


Part = Union[Heading, Paragraph, Bullets, Table, Picture]

# Tables scroll by themselves, their first column stays; the page never does.
STYLE = """\
:root { color-scheme: light; --line: #d0d4d9; --soft: #f4f5f7;
  --grey: #70767d; --good: #0b6b2e; --bad: #a3260b; --link: #0b57a4 }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1f24; margin: 0 auto;
  max-width: 72rem; padding: 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.6rem; line-height: 1.25 }
h2 { font-size: 1.25rem; margin-top: 2.2rem;
  border-bottom: 1px solid var(--line) }
h3 { font-size: 1.05rem; margin-top: 2rem }
a { color: var(--link) }
.warning { border-left: 4px solid #d48806; background: #fff8e6;
  padding: .6rem .9rem }
.scroll { overflow-x: auto; margin: 1rem 0; border: 1px solid var(--line);
  border-radius: 6px }
table { border-collapse: separate; border-spacing: 0; width: 100%;
  font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { padding: .4rem .6rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: normal }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0;
  background: #fff; min-width: 7.5rem }
th { background: var(--soft) }
th:first-child { background: var(--soft) }
table.text td { text-align: left; overflow-wrap: anywhere }
table.text th { text-align: left }
tr:last-child td { border-bottom: 0 }
.grey { color: var(--grey) }
.good { color: var(--good); font-weight: 600 }
.bad { color: var(--bad); font-weight: 600 }
td span, td:not(:first-child) a { white-space: nowrap }
table.text td a { white-space: normal }
figure { margin: 1rem 0 }
img { max-width: 100%; height: auto; display: block }
figcaption { color: var(--grey); font-size: .9rem }
@media (max-width: 600px) {
  body { padding: .75rem; font-size: 15px }
  th, td { padding: .35rem .45rem }
  table { font-size: .82rem }
  th:first-child, td:first-child { min-width: 6rem; max-width: 8.5rem;
    overflow-wrap: anywhere }
}
@media print { .scroll { overflow: visible } }
"""


# ---------------------------------------------------------------------------
# Markdown


def markdown(parts: Sequence[Part]) -> str:
    return "\n\n".join(_markdown(part) for part in parts) + "\n"


def _markdown(part: Part) -> str:
    if isinstance(part, Heading):
        anchor = f'<a id="{part.anchor}"></a>\n\n' if part.anchor else ""
        return f"{anchor}{'#' * part.level} {part.text}"
    if isinstance(part, Paragraph):
        return ("> **Note:** " if part.warning else "") + _spans(part.spans)
    if isinstance(part, Bullets):
        return "\n".join(f"- {_spans(item)}" for item in part.items)
    if isinstance(part, Picture):
        return f"![{part.text}]({part.path})"
    lines = ["| " + " | ".join(part.head) + " |",
             "|---|" + "---:|" * (len(part.head) - 1)]
    lines += ["| " + " | ".join(map(_spans, row)) + " |" for row in part.rows]
    return "\n".join(lines)


def _spans(spans: Spans) -> str:
    words = []
    for span in spans:
        if isinstance(span, Link):
            words.append(f"[{span.text}]({span.href})")
        elif isinstance(span, Grey):
            words.append(f"*{span.text}*")
        elif isinstance(span, Strong):
            words.append(f"**{span.text}**")
        else:
            words.append(span)
    return " ".join(words)


# ---------------------------------------------------------------------------
# HTML


def page(title: str, parts: Sequence[Part]) -> str:
    body = "\n".join(_html(part) for part in parts)
    return f"""<!DOCTYPE html>
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>
{STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _html(part: Part) -> str:
    if isinstance(part, Heading):
        anchor = f' id="{html.escape(part.anchor)}"' if part.anchor else ""
        return (f"<h{part.level}{anchor}>{html.escape(part.text)}"
                f"</h{part.level}>")
    if isinstance(part, Paragraph):
        kind = ' class="warning"' if part.warning else ""
        return f"<p{kind}>{_html_spans(part.spans)}</p>"
    if isinstance(part, Bullets):
        return _lines("<ul>", [f"<li>{_html_spans(item)}</li>"
                               for item in part.items], "</ul>")
    if isinstance(part, Picture):
        text = html.escape(part.text)
        return (f'<figure><a href="{html.escape(part.path)}"><img '
                f'src="{html.escape(part.path)}" alt="{text}"></a>'
                f"<figcaption>{text}</figcaption></figure>")
    return _html_table(part)


def _html_table(table: Table) -> str:
    # Two columns: names and what is said of them, no figures to compare.
    kind = ' class="text"' if len(table.head) == 2 else ""
    head = "".join(f'<th scope="col">{html.escape(text)}</th>'
                   for text in table.head)
    rows = ["<tr>" + "".join(f"<td>{_html_spans(cell)}</td>" for cell in row) +
            "</tr>" for row in table.rows]
    return _lines(f'<div class="scroll" tabindex="0"><table{kind}><thead><tr>'
                  f"{head}</tr></thead><tbody>", rows,
                  "</tbody></table></div>")


def _lines(first: str, middle: List[str], last: str) -> str:
    return "\n".join([first, *middle, last])


def _html_spans(spans: Spans) -> str:
    words = []
    for span in spans:
        if isinstance(span, Link):
            words.append(f'<a href="{html.escape(span.href)}">'
                         f"{html.escape(span.text)}</a>")
        elif isinstance(span, Grey):
            words.append(f'<span class="grey">{html.escape(span.text)}</span>')
        elif isinstance(span, Strong):
            kind = "good" if span.good else "bad"
            words.append(f'<span class="{kind}">{html.escape(span.text)}'
                         "</span>")
        else:
            words.append(html.escape(span))
    return " ".join(words)
