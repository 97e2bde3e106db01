"""A question's answer as a table: on the terminal, and as a section of RESULTS.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness import Absent, Figure, Question, Result, Results, Target

HEAD = """# Results
Written by `make bench`, each section by its own run, with its date and machine.
Every side is warmed up, then all are measured in turn, round after round; a figure is the median of its rounds, with
the lowest and the highest in brackets. Records have keys of 16 bytes and random values of 200; all sides get the same
ones, from Python, on the same filesystem, and only acknowledged ones count: the log is asked afterwards how many it
holds. A ratio is the side's figure divided by that of the side marked 1.00.
"""


def rows(question: Question, results: Results) -> list[list[str]]:
    """The table's cells, a line for each side, the head first."""
    head = ["side", *(cell for figure in question.figures for cell in _heads(figure)), "mode"]
    return [head, *(_row(question, results, result, len(head)) for result in results.values())]


def _heads(figure: Figure) -> list[str]:
    return [figure.name, "ratio"] if figure.ratio else [figure.name]


def _row(question: Question, results: Results, result: Result, width: int) -> list[str]:
    if result.failure:
        return [result.side.name, "failed", *["-"] * (width - 3), result.failure]
    cells = [cell for figure in question.figures for cell in _cells(figure, question.base, results, result)]
    return [result.side.name, *cells, result.side.mode]


def _cells(figure: Figure, base: str, results: Results, result: Result) -> list[str]:
    low, high = min(result.values(figure.name)), max(result.values(figure.name))
    middle = result.median(figure.name)
    text = f"{number(middle, figure)} ({number(low, figure)} … {number(high, figure)})"
    if not figure.ratio:
        return [text]
    try:
        ratio = f"{middle / results.of(base, figure.name):.2f}"
    except (Absent, ZeroDivisionError):
        ratio = "-"
    return [text, ratio]


def number(value: float, figure: Figure) -> str:
    """A figure with its own digits and thousands apart."""
    return f"{value:,.{figure.digits}f}"


def verdicts(targets: Sequence[Target], results: Results) -> list[str]:
    """Each target with what was measured, and whether that is enough."""
    failed = [result.side.name for result in results.values() if result.side.peer and result.failure]
    note = [f"peers that failed, and so are not compared: {', '.join(failed)}"] if failed and targets else []
    return [_verdict(target, results) for target in targets] + note


def _verdict(target: Target, results: Results) -> str:
    try:
        value = target.value(results)
    except Absent as absent:
        return f"not measured: {target.text} ({absent})"
    return f"{'met' if target.met(value) else 'MISSED'}: {target.text}; measured {value:,.{_digits(value)}f}"


def _digits(value: float) -> int:
    return 0 if abs(value) >= 1000 else 2


def show(question: Question, results: Results, machine: dict[str, str], console: Console) -> None:
    """Print the table, the targets and the machine."""
    head, *lines = rows(question, results)
    table = Table(title=question.title, caption=question.note, title_justify="left", caption_justify="left")
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if 0 < place < len(head) - 1 else "left")
    for line in lines:
        table.add_row(*line)
    console.print(table)
    for verdict in verdicts(question.targets, results):
        console.print(verdict, style="green" if verdict.startswith("met") else "red", highlight=False, markup=False)
    console.print(_machine(machine), style="dim", highlight=False, markup=False)


def _machine(machine: dict[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in machine.items())


def section(question: Question, results: Results, machine: dict[str, str]) -> str:
    """The question's part of RESULTS.md."""
    head, *lines = rows(question, results)
    rule = ["---", *["---:"] * (len(head) - 2), "---"]
    table = "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (head, rule, *lines)
    )
    targets = "\n".join(f"- {line}" for line in verdicts(question.targets, results))
    rounds = f"{question.note} {question.rounds} rounds."
    parts = [f"## {question.name}: {question.title}", rounds, table, targets, _machine(machine)]
    return "\n\n".join(part for part in parts if part) + "\n"


def save(text: str, path: Path, order: Sequence[str]) -> None:
    """Put a section in its place, leaving the others as they are."""
    old = path.read_text().split("\n## ")[1:] if path.exists() else []
    sections = {part.split(":", 1)[0]: f"## {part.rstrip()}\n" for part in old}
    sections[text[3:].split(":", 1)[0]] = text
    known = [name for name in order if name in sections]
    path.write_text("\n".join([HEAD, *(sections[name] for name in known)]))
