"""What notebooks show. All texts are escaped, and no variable of a job is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._api.models import ArrayRecord, JobPlan, JobRecord, Offer

_BAD = "color:#b3261e"


def usd(value: float | None) -> str:
    """Returns a price as text; empty for none."""
    if value is None:
        return ""
    return f"${value:.2f}" if value >= 0.01 or value == 0 else f"${value:.3g}"


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table of texts."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def paragraph(text: str, style: str = "") -> str:
    """Returns a paragraph; empty without text."""
    return f'<p style="{style}">{escape(text)}</p>' if text else ""


def plan_html(plan: JobPlan) -> str:
    """Returns the machines of a plan, with prices and reasons."""
    rows = [
        (
            *(number, one.provider, one.instance_type, one.region),
            *(f"{one.cpu:g}", one.memory, (one.gpu and f"{one.gpu.count}×{one.gpu.model}") or ""),
            *(usd(one.cost_breakdown.total_usd_per_hour), usd(one.estimated_cost_usd), one.why),
        )
        for number, one in enumerate(plan.placements, 1)
    ]
    titles = ("#", "cloud", "machine", "region", "vCPU", "memory", "GPU", "$/h", "total", "why")
    verdict = "" if plan.verdict == "placeable" else f"{plan.verdict} ({plan.reason}): {plan.message}"
    notes = [paragraph(verdict, _BAD), *(paragraph(warning) for warning in plan.warnings)]
    return (table(titles, rows) if rows else "") + "".join(notes)


def job_html(job: JobRecord, url: str, log_tail: str) -> str:
    """Returns state, machine, price and cause of a job, and the end of its log."""
    machine = " ".join(part for part in (job.selected_provider, job.selected_instance_type) if part)
    facts = [
        ("status", job.status if job.exit_code is None else f"{job.status}, exit code {job.exit_code}"),
        ("machine", f"{machine} in {job.selected_region}, {usd(job.hourly_price_usd)}/h" if machine else ""),
        ("cost", usd(job.actual_cost) or (usd(job.estimated_cost) and f"about {usd(job.estimated_cost)} expected")),
        ("message", job.error_message or job.message or ""),
    ]
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts if text)
    title = f'<a href="{escape(url, quote=True)}" target="_blank" rel="noopener">{escape(job.name)}</a>'
    end = f"<pre>{escape(log_tail)}</pre>" if log_tail else ""
    return f"<table><caption>{title}</caption><tbody>{rows}</tbody></table>{end}"


def array_html(array: ArrayRecord) -> str:
    """Returns how many jobs of an array are in which state, and its cost."""
    counts = [(name.replace("_", " "), value) for name, value in array.counts.to_dict().items() if value]
    rows = [("status", array.status), ("size", array.size), *counts, ("cost", usd(array.actual_cost))]
    return f"<b>{escape(array.name)}</b>" + table(("", ""), rows) + paragraph(array.message or "")


def offers_html(offers: Iterable[Offer], message: str | None) -> str:
    """Returns machines with their prices."""
    rows = [
        (
            *(one.provider, one.instance_type, one.region, f"{one.cpu:g}", one.memory),
            *((one.gpu and f"{one.gpu.count}×{one.gpu.model}") or "", one.provisioning, usd(one.total_usd_per_hour)),
        )
        for one in offers
    ]
    titles = ("cloud", "machine", "region", "vCPU", "memory", "GPU", "buy", "$/h")
    return (table(titles, rows) if rows else "") + paragraph(message or "")
