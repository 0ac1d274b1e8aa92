"""A run's directory as the content of its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corsdice.training import directory


def run_report(run: Path) -> dict[str, Any]:
    """What `html.render` shows: everything that the directory knows of its run."""
    content = directory.description(run)
    estimates, truths = (_by_member(run / name) for name in (directory.ESTIMATES, directory.EVALUATION))
    failures = directory.failures(run)
    metrics = directory.read_metrics(run)
    members = []
    for index, member in enumerate(content["members"]):
        estimate, truth = estimates.get(member["name"]), truths.get(member["name"])
        own = "".join(f", {name} {value:g}" for name, value in member.get("settings", {}).items())
        members.append(
            {
                "name": f"seed {member['seed']}, α {member['alpha']:g}, limit {member['cost_limit']:.6g}{own}",
                "seed": member["seed"],
                "alpha": member["alpha"],
                "cost_limit": member["cost_limit"],
                "failed": failures.get(index),
                "estimate": estimate,
                "truth": truth,
                "weights": estimate and estimate["weights"],
                "curves": _curves([row for row in metrics if row["member"] == index]),
            }
        )
    data = content["data"]
    return {
        "title": f"{content['algorithm']} on {Path(data['source']).name}",
        "algorithm": content["algorithm"],
        "cost_unit": f"undiscounted sum over an episode of {content['horizon']} steps",
        "limits": list(dict.fromkeys(member["limit"] for member in content["members"])),
        "data": data | {"held_out_episodes": round(content["holdout"] * data["episodes"])},
        "config": content["config"] | content["settings"] | {"holdout": content["holdout"]},
        "versions": content["versions"],
        "members": members,
    }


def _by_member(path: Path) -> dict[str, Any]:
    return {result["member"]: result for result in json.loads(path.read_text())["results"]} if path.exists() else {}


def _curves(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = [name for name in (rows[0] if rows else {}) if name not in ("step", "member")]
    return {name: {"step": [row["step"] for row in rows], "value": [row[name] for row in rows]} for name in names}
