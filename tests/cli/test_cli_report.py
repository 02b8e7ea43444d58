"""``kfuzz report``: the result of a run in other forms, and wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_driver import kfuzz, on_full_disk

GLOB = "records/v2/count/*"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("run") / "result.json"
    kfuzz("conform", GLOB, "--testee", "kfuzz", "--testee", "kafka-python", "--json", file)
    return file


def test_a_result_becomes_every_other_form(result: Path, tmp_path: Path) -> None:
    page, tests, site = tmp_path / "result.html", tmp_path / "result.xml", tmp_path / "public" / "site"
    done = kfuzz("report", result, "--html", page, "--junit", tests, "--site", site, code=0)
    assert "accepts what Kafka refuses: " in done.stdout
    assert "records/v2/count" in page.read_text()
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file())
    assert names == ["data/core.js", "data/theme-0.js", "data/words.js", "index.html", "page.css", "page.js"]
    assert tests.read_text().startswith("<?xml")
    again = kfuzz("report", result, "--json")
    assert json.loads(again.stdout) == json.loads(result.read_text())


def test_two_results_are_compared_by_their_causes(result: Path, tmp_path: Path) -> None:
    same = kfuzz("report", result, result)
    assert (same.returncode, same.stdout) == (0, "nothing changed\n")
    document = json.loads(result.read_text())
    mended = {cell["text"]: cell for case in document["cases"] for cell in case["cells"].values() if "harm" in cell}
    for cell in mended.values():
        cell.clear()
        cell.update({"outcome": "pass", "standing": "ok"})
    (tmp_path / "newer.json").write_text(json.dumps(document))
    assert kfuzz("report", result, tmp_path / "newer.json", code=1).stdout.startswith("gone: kafka-python@")
    changes = json.loads(kfuzz("report", result, tmp_path / "newer.json", "--json").stdout)
    assert changes["gone"]
    assert changes["new"] == changes["moved"] == []


def test_a_site_and_publish_withhold_a_crash_and_a_local_page_does_not(result: Path, tmp_path: Path) -> None:
    """The crash has no public line in vectors/expected/."""
    document = json.loads(result.read_text())
    cell = document["cases"][0]["cells"]["kfuzz@0.1.0"]
    cell.clear()
    cell.update(outcome="crash", standing="unexpected", harm="kills", text="died of SIGSEGV: wild pointer")
    kept, page, site = tmp_path / "kept.json", tmp_path / "kept.html", tmp_path / "site"
    kept.write_text(json.dumps(document))
    assert "wild pointer" in kfuzz("report", kept, "--html", page, "--site", site, code=1).stdout
    assert "wild pointer" in page.read_text()
    assert "wild pointer" not in (site / "index.html").read_text()
    assert ">withheld<" in (site / "index.html").read_text()
    public = kfuzz("report", kept, "--html", page, "--publish", "--json", code=1)
    assert "wild pointer" not in public.stdout + page.read_text()
    assert json.loads(public.stdout)["cases"][0]["cells"]["kfuzz@0.1.0"] == {
        "outcome": "withheld",
        "standing": "unexpected",
    }


def test_a_folder_that_holds_something_gets_no_site(result: Path, tmp_path: Path) -> None:
    site, file, empty = tmp_path / "site", tmp_path / "file", tmp_path / "empty"
    site.mkdir()
    (site / "mine.txt").write_text("mine")
    file.write_text("mine")
    for place, complaint in ((site, "is not empty; name another folder"), (file, "is not a directory")):
        done = kfuzz("report", result, "--site", place, code=2)
        assert complaint in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in site.iterdir()] == ["mine.txt"]
    empty.mkdir()
    assert kfuzz("report", result, "--site", empty).returncode == 0
    assert (empty / "index.html").exists()


@pytest.mark.parametrize("form", ["--html", "--site"])
def test_a_full_disk_leaves_nothing_half_written(result: Path, tmp_path: Path, form: str) -> None:
    said = on_full_disk("report", result, form, tmp_path / "new" / "place", cwd=tmp_path)
    assert "cannot be written" in said
    assert "free space there" in said
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not (tmp_path / "new" / "place").exists()
