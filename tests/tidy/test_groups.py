"""How conftest.py shares out the tests between processes."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import conftest
import pytest


def test_a_group_is_a_file_or_those_that_share_a_fixture_or_a_testee_of_the_matrix() -> None:
    spark = ["tests/spark/test_a.py::test_b", "tests/benchmarks/test_bench_spark_cost.py::test_c[x::y@z]"]
    assert [conftest.group_of(name) for name in spark] == ["spark", "spark"]
    assert conftest.group_of("tests/cli/test_a.py::test_b[x@y]") == "tests/cli/test_a.py"
    matrix = "tests/conformance/test_matrix.py"
    assert conftest.group_of(f"{matrix}::test_a[kafka-go@1.2-100]") == f"{matrix} kafka-go"
    assert conftest.group_of(f"{matrix}::test_a[kafka-python-4]") == f"{matrix} kafka-python"
    assert conftest.group_of(f"{matrix}::test_b") == matrix


def test_the_slowest_group_is_first(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "durations.toml"
    table.write_text('["not full"]\n"tests/slow.py" = 9\n"broker" = 5\n"tests/gone.py" = 99\n')
    monkeypatch.setattr(conftest, "DURATIONS", table)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    names = ["new.py::test_a", "conformance/test_exchange.py::test_b", "slow.py::test_c", "slow.py::test_d"]
    items: Any = [SimpleNamespace(nodeid=f"tests/{name}") for name in names]
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr="not full"))
    conftest.pytest_collection_modifyitems(config, items)
    assert [item.nodeid[-1] for item in items] == ["c", "d", "b", "a"]


@pytest.mark.parametrize("own", [{}, {"broker": None}], ids=["shared", "own"])
def test_a_shared_fixture_outside_its_group_is_refused(own: dict[str, None]) -> None:
    item = SimpleNamespace(nodeid="tests/new.py::test_a", fixturenames=["broker"], module=SimpleNamespace(**own))
    with nullcontext() if own else pytest.raises(pytest.fail.Exception, match=r"'broker'.*groups\.toml"):
        conftest.pytest_runtest_setup(item)
