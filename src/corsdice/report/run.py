"""A run's directory as the content of its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corsdice.costs import CostLimit
from corsdice.training import directory


def run_report(run: Path) -> dict[str, Any]:
    """What `html.render` shows: everything that the directory knows of its run."""
    content = directory.description(run)
    estimates, truths = (_by_member(run / name) for name in (directory.ESTIMATES, directory.EVALUATION))
    failures = directory.failures(run)
    metrics = directory.read_metrics(run)
    members = []
    for name, policy in directory.load_policies(run).items():
        about, estimate = policy.about, estimates.get(name)
        own = "".join(f", {setting} {value:g}" for setting, value in about.get("settings", {}).items())
        acts = f", {about['way']} at λ {about['multiplier']:.3g}" if "way" in about else ""
        members.append(
            {
                "name": f"seed {about['seed']}, α {about['alpha']:g}, limit {about['cost_limit']:.6g}{own}{acts}",
                "seed": about["seed"],
                "alpha": about["alpha"],
                "cost_limit": about["cost_limit"],
                "failed": failures.get(about["member"]),
                "estimate": estimate,
                "truth": truths.get(name),
                "curves": _curves([row for row in metrics if row["member"] == about["member"]]),
            }
        )
    horizon, discount = content["horizon"], content["discount"]
    stated = dict.fromkeys(member["cost_limit"] for member in members)
    data = content["data"]
    return {
        "title": f"{content['algorithm']} on {Path(data['source']).name}",
        "algorithm": content["algorithm"],
        "cost_unit": f"undiscounted sum over an episode of {content['horizon']} steps",
        "limits": [str(CostLimit.episodic(limit, horizon=horizon, discount=discount)) for limit in stated],
        "frontier": frontier_of(run),
        "data": data | {"held_out_episodes": max(1, round(content["holdout"] * data["episodes"] / 2))},
        "config": content["config"] | content["settings"] | {"holdout": content["holdout"]},
        "versions": content["versions"],
        "members": members,
    }


def frontier_of(run: Path) -> list[dict[str, Any]]:
    """The policies of a family's frontier; none of a run that was trained for its limits."""
    if not (run / f"{directory.FAMILY}.json").exists():
        return []
    family = directory.read_family(run)
    return [
        each.to_json() | {"trained": f"seed {about['seed']}, α {about['alpha']:g}"}
        for each in family.frontier.points
        for about in [family.abouts[each.member]]
    ]


def _by_member(path: Path) -> dict[str, Any]:
    return {result["member"]: result for result in json.loads(path.read_text())["results"]} if path.exists() else {}


def _curves(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = [name for name in (rows[0] if rows else {}) if name not in ("step", "member")]
    return {name: {"step": [row["step"] for row in rows], "value": [row[name] for row in rows]} for name in names}
