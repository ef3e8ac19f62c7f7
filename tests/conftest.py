"""Options of the test suite, and the sum of the sweep over PyTorch's op database."""

from collections import Counter

import pytest
import torch


def pytest_addoption(parser):
    parser.addoption(
        "--whole-op-database",
        action="store_true",
        help="sweep all samples of every op of PyTorch's op database, not a few of each",
    )


def pytest_terminal_summary(terminalreporter):
    swept = [
        kinds
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, kinds in report.user_properties
        if name == "op database" and set(kinds) - {"skipped"}
    ]
    if not swept:
        return
    of_kind = Counter(kind for kinds in swept for kind in kinds if kind != "skipped")
    rest = of_kind["equal"] + of_kind["wrong"]
    terminalreporter.section("op database")
    terminalreporter.line(
        f"{len(swept)} ops, {of_kind.total()} samples: {of_kind['equal']} equal eager "
        f"({100 * of_kind['equal'] / max(1, rest):.2f} % of those not refused), "
        f"{of_kind['refused']} refused, {of_kind['wrong']} wrong"
    )


@pytest.fixture
def one_thread():
    """One order of sums in eager and in any replay; and other tests may run beside this one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
