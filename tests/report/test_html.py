import json
import math
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser

import pytest

from corsdice.report import html

HOSTILE = "</script><script>throw 1</script><a href='https://example.org'>"
CHARTS = ("The frontier", "Multiplier", "Estimated cost", "Costs of single episodes", "policy_loss", "q_loss")
WIDTHS = (1280, 390)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,2000"),
    *("--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--virtual-time-budget=20000", "--dump-dom"),
)


def small_report():
    """Two limits and two seeds; one member failed, one has no truth."""
    verdicts = {(20, 0): "meets", (40, 0): "does not meet", (40, 1): "cannot be told"}
    return {
        "title": "corsdice on point-circle.hdf5",
        "algorithm": "corsdice",
        "cost_unit": "undiscounted sum over an episode of 200 steps",
        "limits": [
            "20 per episode of 200 steps = 8.66 discounted (γ=0.99) = 0.0866 per step",
            "40 per episode of 200 steps = 17.3 discounted (γ=0.99) = 0.173 per step",
        ],
        "frontier": [],
        "data": {
            "source": "point-circle.hdf5",
            "transitions": 100_000,
            "episodes": 500,
            "held_out_episodes": 50,
            "sha256": "9f86d081" * 8,
        },
        "config": {"discount": 0.99, "hidden": [256, 256]},
        "versions": {"corsdice": "0.1.0", "jax": "0.8.0"},
        "members": [
            member(seed, limit, verdicts.get((limit, seed)), with_truth=(limit, seed) != (40, 1))
            for limit in (20, 40)
            for seed in (0, 1)
        ],
    }


def member(seed, limit, verdict, with_truth):
    """A member that failed if it has no verdict."""
    steps = [0, 100, 200, 300]
    curves = {
        "multiplier": [0.0, 0.5, 0.8, 0.9],
        "estimated_cost": [60.0, 40.0, 25.0, limit],
        "q_loss": [1.0, 0.5, math.nan, 0.2],
        "policy_loss": [2.0, 1.0, 0.5, -0.2],
        "entropy": [1.0, 0.9, 0.8, 0.7],
    }
    estimate = {
        "return": {"value": 130.1 + seed, "low": 125.0, "high": 136.0},
        "cost": {"value": 18.0, "low": 15.0, "high": 19.5},
        "share_over": {"value": 0.123, "low": 0.1, "high": 0.15},
        "cvar": {"value": 41.5, "low": 38.0, "high": 45.0},
        "pi_w_cost": None if seed else 19.0,
        "naive_cost": None if seed else 12.0,
        "strange": 0.021,
        "episode_costs": {"edges": [0.0, 1.0, 2.0, 3.0], "counts": [900, 0, 10]},
        "verdict": verdict,
        "reason": f"why it {verdict}",
    }
    return {
        "name": f"seed {seed}, α 0.3, limit {limit}",
        "seed": seed,
        "alpha": 0.3,
        "cost_limit": float(limit),
        "failed": None if verdict else "stopped at step 300: q_loss is not finite",
        "estimate": estimate if verdict else None,
        "truth": {"return": 131.0, "return_se": 0.5, "cost": 17.2, "cost_se": 0.6, "episodes": 1000}
        if verdict and with_truth
        else None,
        "curves": {name: {"step": steps, "value": values} for name, values in curves.items()},
    }


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text without scripts and styles."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(page)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] not in ("script", "style"):
            self.words.append(data)


def test_every_limit_gets_a_verdict_in_words():
    text = Page(html.render(small_report())).text
    assert (
        "Limit 20: 1 of 2 policies meet the limit with 95 % confidence (failed in training: 1); "
        "it returns about 130.1 [125, 136]." in text
    )
    assert (
        "Limit 40: 0 of 2 policies meet the limit with 95 % confidence (not meeting it: 1, cannot be told: 1)." in text
    )
    assert "first states of 50 episodes that were held out" in text
    assert "undiscounted sum over an episode of 200 steps" in text
    assert "17.3 discounted (γ=0.99) = 0.173 per step" in text


@pytest.mark.parametrize(
    ("verdicts", "tone"),
    [
        (["meets", "meets"], "good"),
        (["meets", "does not meet"], "unsure"),
        (["meets", None], "unsure"),
        (["cannot be told", "does not meet"], "unsure"),
        (["does not meet", "does not meet"], "bad"),
        ([None, None], "bad"),
    ],
)
def test_the_tone_is_good_only_if_all_meet_and_bad_only_if_nothing_is_open(verdicts, tone):
    members = [member(seed, 20, verdict, with_truth=False) for seed, verdict in enumerate(verdicts)]
    assert html.verdict(20.0, members)["tone"] == tone


def test_the_best_of_several_is_told():
    members = [member(seed, 20, "meets", with_truth=False) for seed in (0, 1)]
    assert html.verdict(20.0, members)["text"].endswith("the best of them returns about 131.1 [125, 136].")


def test_the_table_tells_of_every_member():
    text = Page(html.render(small_report())).text
    for words in (
        "✓ meets why it meets",
        "✕ does not meet why it does not meet",
        "? cannot be told why it cannot be told",
    ):
        assert words in text
    assert "✕ failed stopped at step 300: q_loss is not finite" in text
    assert "17.2 ± 0.6" in text
    for risk in ("12.3 %", "41.5 [38, 45]", "2.1 %"):
        assert risk in text


def test_charts_with_nothing_to_show_are_left_out():
    report = small_report()
    for each in report["members"]:
        each |= {"estimate": None, "truth": None}
        each["curves"] = {"q_loss": {"step": [0, 1], "value": [math.nan, math.inf]}}
    page = html.render(report)
    assert "<figure>" not in page
    assert "<script>" not in page
    assert "true cost" not in page
    assert "– no estimate" in page


def test_hostile_text_stays_text():
    report = small_report()
    report |= {"title": HOSTILE, "config": {HOSTILE: HOSTILE}}
    report["data"]["source"] = HOSTILE
    report["members"][0] |= {"name": HOSTILE}
    report["members"][0]["curves"][f"{HOSTILE}_loss"] = {"step": [0], "value": [1.0]}
    page = html.render(report)
    assert HOSTILE not in page
    assert [tag for tag, _ in Page(page).tags].count("script") == 2
    assert "a" not in [tag for tag, _ in Page(page).tags]
    assert "u003ca href" not in page  # Plotly would make it a link


def test_nothing_is_loaded_from_the_network():
    page = html.render(small_report())
    tags = Page(page).tags
    assert not [attributes for _, attributes in tags if {"src", "href", "srcset", "data", "action"} & attributes.keys()]
    assert not {"link", "iframe", "base", "object", "embed"} & {tag for tag, _ in tags}
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style


def test_numbers_read_well():
    assert [html.number(x) for x in (130.123, 0.0866, 123456.7, math.nan, None)] == [
        "130.1",
        "0.0866",
        "123,457",
        "–",
        "–",
    ]


PROBE_ERRORS = """<script>
const errors = [];
addEventListener("error", event => errors.push(String(event.message)));
addEventListener("unhandledrejection", event => errors.push(String(event.reason)));
addEventListener("securitypolicyviolation", event => errors.push(event.blockedURI));
</script>"""
PROBE_PAGE = """<script>
document.querySelectorAll("details").forEach(each => each.open = true);
setTimeout(() => parent.postMessage({
  width: innerWidth,
  errors,
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  fetched: performance.getEntriesByType("resource").map(entry => entry.name),
  charts: [...document.querySelectorAll("figure")].map(figure => ({
    title: figure.querySelector("h3").textContent,
    drawn: figure.querySelectorAll("svg.main-svg").length > 0,
    points: figure.querySelectorAll(".scatterlayer path.point").length,
    lines: figure.querySelectorAll(".scatterlayer path.js-line").length,
    overflow: figure.scrollWidth - figure.clientWidth,
  })),
}, "*"), 2000);
</script>"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What a real browser makes of the page, by width: in frames, since a window is at least 500 pixels wide."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("needs chromium or google-chrome to open the page")
    directory = tmp_path_factory.mktemp("page")
    report = small_report()
    report["members"][0]["name"] = HOSTILE + "long" * 100
    html.write(report, directory / "report.html")
    assert [path.name for path in directory.iterdir()] == ["report.html"]

    page = (directory / "report.html").read_text(encoding="utf-8")
    page = page.replace("<head>", "<head>" + PROBE_ERRORS, 1).replace("</body>", PROBE_PAGE + "</body>")
    (directory / "probed.html").write_text(page, encoding="utf-8")
    frames = "".join(
        f"<iframe src=probed.html style='border:0;width:{width}px;height:900px'></iframe>" for width in WIDTHS
    )
    listen = "addEventListener('message', e => out.append(JSON.stringify(e.data) + '\\n'))"
    (directory / "frames.html").write_text(f"<pre id=out></pre><script>{listen}</script>{frames}", encoding="utf-8")

    profile = directory / "profile"
    command = [browser, *FLAGS, f"--user-data-dir={profile}", (directory / "frames.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    lines = re.search('<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)
    assert lines, done.stderr
    return {each["width"]: each for each in map(json.loads, unescape(lines[1]).split("\n")[:-1])}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_draws_every_chart_without_errors_or_network(seen, width):
    assert seen[width]["errors"] == []
    assert seen[width]["fetched"] == []
    assert [chart["title"] for chart in seen[width]["charts"]] == list(CHARTS)
    assert all(chart["drawn"] for chart in seen[width]["charts"])
    assert [chart["points"] for chart in seen[width]["charts"]] == [5, 0, 0, 0, 0, 0]  # 3 estimates, 2 truths
    # The gap of an empty bin cuts each of 3 histograms in two, and a NaN each of 4 curves of q_loss.
    assert [chart["lines"] for chart in seen[width]["charts"]] == [0, 4, 4, 6, 4, 8]


@pytest.mark.parametrize("width", WIDTHS)
def test_only_the_table_scrolls_sideways(seen, width):
    assert seen[width]["overflow"] <= 0
    assert max(chart["overflow"] for chart in seen[width]["charts"]) <= 0
