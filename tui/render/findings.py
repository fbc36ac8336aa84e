"""Findings: as a line or two below all panes, as the text of a row, and all of them with what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llmtop.analysis.commands import profiling
from llmtop.frozen import frozen
from llmtop.model import Severity
from llmtop.tui.render.lines import Part, cut_words, line, spelled, width_of, wrap

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.analysis.rules.registry import Diagnosis
    from llmtop.model import Finding, Issue, Missing, Trace, Unknown
    from llmtop.tui.render.look import Look

_LEAST_ACTION = 20
_INDENT, _AROUND = 7, 7
"""Cells around what to do: on a line of its own, the arrow before it and the gap to which key says why; on the line of
what is wrong, its mark and the arrow."""
_WIDEST_LABEL = 2 / 5
"""Of the width: a longer label has a line of its own."""
_BELOW_LABEL = 2
"""Cells by which its text is indented then."""
SEVERITY_ROLES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFO: "good"}


def severity_mark(severity: Severity, look: Look) -> str:
    """A shape for each severity: colour is never the only signal."""
    glyphs = look.glyphs
    return {Severity.ERROR: glyphs.bad, Severity.WARNING: glyphs.warn, Severity.INFO: glyphs.good}[severity]


def draw_findings(diagnosis: Diagnosis, width: int, height: int, look: Look) -> list[Strip]:
    """What is wrong and what to do about it, the gravest first; how many more there are stands at the end.

    What to do takes a second line where it does not fit behind what is wrong, as long as there are lines.
    """
    findings = diagnosis.findings
    if not findings:
        mark = look.glyphs.good if diagnosis.is_clear else " "
        return [line([(f" {mark} {diagnosis.verdict} (why: d)", "dim")], width, look)]
    rows: list[Strip] = []
    for i, finding in enumerate(_with_windows(diagnosis)):
        room, hidden = height - len(rows), len(findings) - i - 1
        if room <= 0:
            break
        is_in_one = _fits(finding, f"+{hidden} more: d  ", width, look)
        is_last = hidden == 0 or room == 1 or (room == 2 and not is_in_one)
        more = "" if not is_last else f"+{hidden} more: d" if hidden else "d: why"
        rows += _in_one(finding, more, width, look) if is_in_one or room == 1 else _in_two(finding, more, width, look)
    return rows


def _with_windows(diagnosis: Diagnosis) -> Iterator[Finding]:
    """The findings, with what their shares are of before the first, and where that becomes another."""
    said = ""
    for finding in diagnosis.findings:
        window = diagnosis.window(finding)
        yield finding if window in ("", said) else replace(finding, message=f"{window}: {finding.message}")
        said = window or said


def _fits(finding: Finding, more: str, width: int, look: Look) -> bool:
    words = (more, spelled(finding.message, look), spelled(finding.action, look))
    return _AROUND + sum(width_of(one) for one in words) <= width


def _in_one(finding: Finding, more: str, width: int, look: Look) -> list[Strip]:
    return [line(_parts(finding, f"{more}  " if more else "", width, look), width, look)]


def _in_two(finding: Finding, more: str, width: int, look: Look) -> list[Strip]:
    action = cut_words(spelled(finding.action, look), width - _INDENT - width_of(more), look)
    return [
        line(_said(finding, "", width, look), width, look),
        line([(f"   {look.glyphs.arrow} {action}", "text"), (f"  {more}" if more else "", "dim")], width, look),
    ]


def _parts(finding: Finding, more: str, width: int, look: Look) -> list[Part]:
    """What is wrong, and what to do as far as it fits."""
    parts = _said(finding, more, width, look)
    arrow = f"  {look.glyphs.arrow} "
    room = width - sum(width_of(text) for text, _ in parts)
    action = cut_words(spelled(finding.action, look), room - width_of(arrow), look)
    return [*parts, (arrow + action if room > _LEAST_ACTION else "", "text")]


def _said(finding: Finding, more: str, width: int, look: Look) -> list[Part]:
    """What fits in whole words. Which key says why is left out first; that there are more findings never is."""
    mark: Part = (f" {severity_mark(finding.severity, look)} ", SEVERITY_ROLES[finding.severity])
    room = width - width_of(mark[0])
    if width_of(more) + width_of(finding.message) > room:
        more = more.replace(" more", "") if more.startswith("+") else ""
    return [mark, (more, "dim"), (cut_words(spelled(finding.message, look), room - width_of(more), look), "value")]


# -- one of them, and all of them -----------------------------------------------------------------------------


@frozen
class Paragraph:
    """A mark or a label, and a text that wraps beside it."""

    label: str
    label_role: str
    text: str
    role: str = "text"
    indent: int = 0


def finding_paragraphs(finding: Finding, directory: str = "") -> Iterator[Paragraph]:
    """What, what to do, the command and in which directory it is to run, or why there is none, and how we know."""
    role = SEVERITY_ROLES[finding.severity]
    yield Paragraph(finding.severity.value, role, f"{finding.message}  [{finding.subject}]", "value", 1)
    yield Paragraph("do:  ", "dim", finding.action, indent=3)
    if finding.next_command:
        yield Paragraph("next:", "dim", finding.next_command, "accent", 3)
        if directory:
            yield Paragraph("in:  ", "dim", directory, "accent", 3)
    elif finding.no_command:
        yield Paragraph("no command:", "dim", finding.no_command, "dim", 3)
    for evidence in finding.evidence:
        yield Paragraph("-", "dim", evidence, indent=5)
    rule = f"{finding.rule} ({finding.source})" if finding.source else finding.rule
    yield Paragraph("rule:", "dim", rule, "dim", 3)


def finding_text(finding: Finding, directory: str = "") -> tuple[tuple[str, str], ...]:
    """The same without margins, for a narrow place below a table that has its severity: texts with their roles."""
    title, *rest = finding_paragraphs(finding, directory)
    return ((title.text, "title"), *((f"{one.label.rstrip()} {one.text}", one.role) for one in rest))


def diagnosis(trace: Trace, issues: Sequence[Issue], diagnosed: Diagnosis) -> Iterator[Paragraph]:
    """Findings with evidence, then faults, what is missing and how to get it, and which rules could not judge."""
    if not diagnosed.findings:
        yield Paragraph("", "dim", f"{diagnosed.verdict[:1].upper()}{diagnosed.verdict[1:]}.", "value")
        yield _BLANK
    if of_what := diagnosed.of_what():
        yield Paragraph("", "dim", f"{of_what[:1].upper()}{of_what[1:]}:", "dim")
    has_commands = any(finding.next_command for finding in diagnosed.findings)
    if has_commands and (where := profiling.where_to_run(trace, diagnosed.findings)):
        yield Paragraph("", "dim", f"{where[:1].upper()}{where[1:]}.", "dim")
    for finding in diagnosed.findings:
        yield from finding_paragraphs(finding, profiling.directory_for(trace, finding.next_command))
        yield _BLANK
    yield from _faults((*trace.issues, *issues))
    yield from _missing(trace.missing)
    yield from _unjudged(diagnosed)


def draw_diagnosis(paragraphs: Sequence[Paragraph], width: int, look: Look) -> list[list[Part]]:
    """Lines of parts, wrapped beside their labels; a label that would take the text's room stands above it."""
    return [parts for one in paragraphs for parts in _wrapped(one, width, look)]


def _wrapped(one: Paragraph, width: int, look: Look) -> Iterator[list[Part]]:
    mark = severity_mark(Severity(one.label), look) if one.label in _SEVERITIES else one.label
    indent = " " * one.indent
    head = f"{indent}{mark} " if mark else indent
    if width_of(head) > width * _WIDEST_LABEL:
        yield from ([(indent + row, one.label_role)] for row in wrap(mark, width - one.indent, look))
        head = indent + " " * _BELOW_LABEL
    margin = width_of(head)
    for i, row in enumerate(wrap(one.text, max(10, width - margin), look) or [""]):
        yield [(head, one.label_role) if i == 0 else (" " * margin, "text"), (row, one.role)]


_SEVERITIES = frozenset(severity.value for severity in Severity)
_BLANK = Paragraph("", "text", "")


def _unjudged(diagnosed: Diagnosis) -> Iterator[Paragraph]:
    """Each reason once, with the rules that it keeps from judging."""
    if not diagnosed.unjudged:
        return
    yield Paragraph("", "title", "Rules that lack data: what they look for may be there unseen", "title")
    yield from _reasons([(one.rule, one.why) for one in diagnosed.unjudged], most=len(diagnosed.unjudged))


def _missing(missing: Sequence[Missing]) -> Iterator[Paragraph]:
    """Each reason once: eight GPUs without GPM are one thing to know."""
    if not missing:
        return
    yield Paragraph("", "title", "What cannot be seen here, and how to change that", "title")
    yield from _reasons([(one.what, one.why) for one in missing])


def _reasons(lacking: Sequence[tuple[str, Unknown]], most: int = 3) -> Iterator[Paragraph]:
    alike: dict[tuple[str, str], list[str]] = {}
    for what, why in lacking:
        alike.setdefault((why.reason, why.remedy), []).append(what)
    for (reason, remedy), names in alike.items():
        yield Paragraph(f"{_named(names, most)}:", "value", reason, indent=1)
        if remedy:
            yield Paragraph("", "text", remedy, "accent", 3)
    yield _BLANK


def _named(names: Sequence[str], most: int) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _faults(issues: Sequence[Issue]) -> Iterator[Paragraph]:
    if not issues:
        return
    yield Paragraph("", "title", "Faults in the data", "title")
    for issue in issues:
        times = f" ({issue.count} times)" if issue.count > 1 else ""
        role = SEVERITY_ROLES[issue.severity]
        yield Paragraph(issue.severity.value, role, issue.message + times, indent=1)
    yield _BLANK
