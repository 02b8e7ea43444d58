"""testee.toml: which testees there are, which can run here, and when they are built."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kfuzz.conformance.protocol.building import BuildFailed
from kfuzz.conformance.protocol.testees import Testee, all_testees, chosen, select
from kfuzz.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def folder_of(root: Path, text: str, name: str = "toy") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "testee.toml").write_text(text)
    return folder


PLAIN = 'name = "toy"\nlanguage = "c"\n[[versions]]\nversion = "1"\nrun = ["{python}", "{folder}/toy.py"]\n'


def test_a_command_has_less_time_to_its_handshake_than_a_testee_of_the_repository_unless_told() -> None:
    (mine,) = chosen([], ["cat"])
    (own,) = chosen(["kfuzz"], [])
    assert (mine.start_timeout_ms, own.start_timeout_ms) == (10_000, 60_000)
    both = chosen(["kfuzz"], ["cat"], start_timeout_ms=3000)
    assert [testee.start_timeout_ms for testee in both] == [3000, 3000]


def test_every_version_is_a_testee_and_kfuzz_is_the_first(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, PLAIN + '[[versions]]\nversion = "2"\nrun = ["toy2"]\n')
    testees = all_testees(tmp_path)
    assert [testee.name for testee in testees] == ["kfuzz", "toy", "toy"]
    assert testees[1].argv == (sys.executable, f"{folder}/toy.py")
    assert [testee.label for testee in select(testees, ["toy"])] == ["toy@1", "toy@2"]
    assert [testee.label for testee in select(testees, ["toy@2", "toy"])] == ["toy@2", "toy@1"]


def test_a_testee_says_what_it_judges_and_what_it_does_itself(tmp_path: Path) -> None:
    folder_of(tmp_path / "plain", PLAIN)
    [_, plain] = all_testees(tmp_path / "plain")
    assert (plain.kind, plain.of, plain.own) == ("decoder", "toy", ())
    folder_of(tmp_path, 'kind = "client"\nof = "lib"\nown = ["It seeks."]\n' + PLAIN)
    [_, client] = all_testees(tmp_path)
    assert (client.kind, client.of, client.own) == ("client", "lib", ("It seeks.",))


def test_a_change_of_the_kit_builds_again(tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    kit.mkdir()
    (kit / "kit.go").write_text("one")
    folder = folder_of(
        tmp_path,
        'name = "toy"\nlanguage = "go"\nkit = "../kit"\n[[versions]]\nrun = ["true"]\nproduct = "target/made"\n'
        'build = ["sh", "-c", "mkdir -p target; cat ../kit/kit.go >> target/made"]\n',
    )
    made = folder / "target" / "made"
    for _ in range(2):
        all_testees(tmp_path)[-1].make_ready()
        assert made.read_text() == "one"
    (kit / "kit.go").write_text("two")
    later = made.stat().st_mtime + 10
    os.utime(kit / "kit.go", (later, later))
    all_testees(tmp_path)[-1].make_ready()
    assert made.read_text() == "onetwo"


def test_the_committed_testees_can_be_read() -> None:
    assert {"kfuzz", "aiokafka", "kafka-clients", "kafka-python"} <= {testee.name for testee in all_testees()}


@pytest.mark.parametrize(
    ("need", "sentence"),
    [
        ('requires = ["no-such-program"]', "toy@1 is left out: it needs no-such-program"),
        ('modules = ["no_such_module"]', "toy@1 is left out: it needs the Python module no_such_module"),
        ('requires = ["sh"]\nmodules = ["json"]', None),
    ],
)
def test_a_testee_whose_toolchain_is_missing_says_so_and_is_refused_by_name(
    tmp_path: Path, need: str, sentence: str | None
) -> None:
    folder_of(tmp_path, PLAIN.replace("[[versions]]", f"{need}\n[[versions]]"))
    testees = all_testees(tmp_path)
    assert testees[1].missing() == sentence
    if sentence:
        with pytest.raises(UsageError, match="it needs"):
            select(testees, ["toy"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name = ", "not TOML"),
        ('name = "toy"', "lacks versions"),
        (PLAIN.replace('name = "toy"', ""), "lacks name"),
        (PLAIN.replace("run = ", "rum = "), "lacks run"),
        (PLAIN + "colour = 1\n", r"versions\[0\].colour is not a key that kfuzz knows"),
        (PLAIN.replace('["{python}", "{folder}/toy.py"]', "[]"), r"run is \[\]; give a list of words"),
        (PLAIN.replace('"1"', "1"), "version is 1; give a text"),
        ('kind = "server"\n' + PLAIN, 'kind is "server"; choose decoder or client; see testees/README.md'),
        ("own = [1]\n" + PLAIN, r"own\[0\] is 1; give a text"),
    ],
)
def test_a_wrong_testee_file_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    folder = folder_of(tmp_path, text)
    with pytest.raises(UsageError, match=complaint) as caught:
        all_testees(tmp_path)
    assert str(caught.value).startswith(str(folder / "testee.toml"))


def builder(folder: Path, script: str) -> Testee:
    folder.mkdir()
    (folder / "source.c").write_text("int main;")
    return Testee("toy", "1", ("toy",), folder, build=("sh", "-c", script), product=folder / "target" / "toy")


def test_a_testee_is_built_when_a_source_is_newer_than_its_product_and_only_then(tmp_path: Path) -> None:
    testee = builder(tmp_path / "toy", "mkdir -p target && echo built >>target/toy")
    product = tmp_path / "toy" / "target" / "toy"
    testee.make_ready()
    testee.make_ready()
    assert product.read_text() == "built\n"
    later = product.stat().st_mtime + 10
    os.utime(tmp_path / "toy" / "source.c", (later, later))
    testee.make_ready()
    assert product.read_text() == "built\nbuilt\n"


def test_two_that_need_a_testee_at_the_same_time_build_it_once(tmp_path: Path) -> None:
    testee = builder(tmp_path / "toy", "sleep 0.3 && mkdir -p target && echo built >>target/toy")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: testee.make_ready(), range(2)))
    assert (tmp_path / "toy" / "target" / "toy").read_text() == "built\n"


BARE = """
import sys
from importlib.machinery import ExtensionFileLoader, PathFinder

class NothingCompiled:
    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path)
        is_ours = name.partition(".")[0] == "kfuzz"
        if spec and is_ours and isinstance(spec.loader, ExtensionFileLoader):
            raise ModuleNotFoundError(f"{name} is not compiled yet")

sys.path.insert(0, sys.argv[1])
sys.meta_path.insert(0, NothingCompiled())
from kfuzz.conformance.protocol.testees import all_testees, build_all
print(len(all_testees()))
"""


def test_testees_can_be_built_before_anything_is_installed_or_compiled() -> None:
    """`make build` does it in the background. If it fails there, only the tests' time shows it."""
    # -S leaves out what is installed, this checkout's own link too.
    done = subprocess.run([sys.executable, "-I", "-S", "-c", BARE, ROOT], capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("", f"{len(all_testees())}\n")


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo no luck >&2; exit 3", "ended with 3: no luck"),
        ("echo '# example.com/lib' >&2; echo lib.go:1: no luck >&2; exit 3", "ended with 3: lib.go:1: no luck"),
        ("true", "succeeded, but did not make"),
    ],
)
def test_a_build_that_fails_is_a_sentence(tmp_path: Path, script: str, sentence: str) -> None:
    with pytest.raises(BuildFailed, match=sentence):
        builder(tmp_path / "toy", script).make_ready()
